"""The workers (next part of the product)."""
