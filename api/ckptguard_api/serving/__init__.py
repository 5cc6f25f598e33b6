"""`ckptguard serve`: one command that starts everything, and ends everything."""
