"""Database migrations (next part of the product)."""
