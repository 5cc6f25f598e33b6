"""Commands of the service, plugged into `ckptguard` by entry points."""
