"""What people and machines read about the service."""
