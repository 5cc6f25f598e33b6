"""The shipped test kit: damage, traps, contracts, fakes."""
