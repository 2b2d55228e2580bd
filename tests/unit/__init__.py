"""Floor 1: pure. No zmq, no sockets, no llama_cpp, no clock."""
