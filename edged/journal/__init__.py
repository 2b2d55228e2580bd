"""What was accepted outlives the daemon: records in files (ADR 17)."""
