"""What the service does: one function a verb, one transaction each."""
