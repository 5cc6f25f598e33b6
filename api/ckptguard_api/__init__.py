"""The HTTP service (next part of the product)."""
