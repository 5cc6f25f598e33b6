"""`adopt`: finds checkpoints below a root, waits until each is committed and at rest, registers it.

Listings, metadata and pointers are all that is opened; no byte of a shard is read, and nothing
is changed. What is found again is registered again, which changes nothing: so it may be stopped
and started at any time, and keeps no state of its own.
"""
