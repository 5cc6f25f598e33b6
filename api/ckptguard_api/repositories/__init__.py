"""SQL, one module per noun: rows in, rows out; no decisions."""
