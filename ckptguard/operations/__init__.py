"""The verbs of the product."""
