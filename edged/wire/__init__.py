"""The client wire: bytes to messages (codec), sockets, and who is calling (auth)."""
