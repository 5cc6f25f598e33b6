"""HTTP: each module translates requests into use cases; none decides."""
