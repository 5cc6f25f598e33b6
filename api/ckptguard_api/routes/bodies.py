"""Large bodies, as bytes: their routes parse them in a thread, under limits of their own.

Small ones are ordinary parameters of a route. Both were bounded, decoded (gzip, zstd) and, where small,
held against strict JSON before the route was chosen (`ckptguard_api.doorkeeper`).
"""

from typing import Annotated

from fastapi import Depends, Request


async def raw_body(request: Request) -> bytes:
    """Return the decoded body."""
    return await request.body()


RawBody = Annotated[bytes, Depends(raw_body)]
