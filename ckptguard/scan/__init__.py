"""The one pass over the bytes."""
