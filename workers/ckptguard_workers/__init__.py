"""The workers: they take leases, validate in children, and report (docs/service.md, "Worker")."""
