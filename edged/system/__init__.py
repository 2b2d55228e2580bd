"""What the kernel and the files tell: cores, GGUF headers."""
