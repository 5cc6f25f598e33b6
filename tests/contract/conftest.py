"""The S3 server for contract tests."""

from tests.integration.s3_server import s3_server

__all__ = ["s3_server"]
