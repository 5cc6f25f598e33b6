"""The child process that loads."""
