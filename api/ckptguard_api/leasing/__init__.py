"""Who may work on what, for how long, and what becomes of it: claim, fence, expiry, schedule."""
