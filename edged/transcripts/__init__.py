"""Transcripts of sessions on the disk: SQLite, on a thread of its own."""
