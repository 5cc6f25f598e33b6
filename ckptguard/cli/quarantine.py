"""`ckptguard quarantine`: see `holds`."""

from ckptguard.cli.holds import quarantine_app as app

__all__ = ["app"]
