"""`edgectl report`: one self-contained page about the box."""
