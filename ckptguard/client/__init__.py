"""The typed HTTP client of the service, sync and async (docs/service.md)."""
