"""`ckptguard pin`: see `holds`."""

from ckptguard.cli.holds import pin_app as app

__all__ = ["app"]
