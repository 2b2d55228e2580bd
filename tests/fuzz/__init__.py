"""Bytes from elsewhere, bent until something breaks: see README.md in this directory."""
