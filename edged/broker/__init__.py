"""The life of a request: table, admission and streams. Pure: no sockets, no clock, no llama.cpp."""
