"""The service: owns the database and everything durable; speaks HTTP (docs/service.md)."""
