"""One adapter per checkpoint format, and the only parsers of untrusted bytes."""
