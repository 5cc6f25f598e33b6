"""The values of the product: pure, immutable, standard library only."""
