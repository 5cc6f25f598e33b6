"""`ckptguard release`: see `holds`."""

from ckptguard.cli.holds import release_app as app

__all__ = ["app"]
