"""Prepared answers of one API process: exact against the database, shared by requests, waited for."""
