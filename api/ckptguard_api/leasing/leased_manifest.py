"""The manifest of one part of a leased checkpoint, as it was registered."""

from sqlalchemy import select

from ckptguard.errors import NotFoundError
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.packed_manifest import unpack_manifest
from ckptguard_api.leasing.fence import find_own_attempt
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.repositories.manifests import manifest_body
from ckptguard_api.services import Services
from ckptguard_api.tables import parts


def leased_manifest(services: Services, key: LeaseKey, *, part: str, actor: Actor) -> bytes:
    """Return a manifest v1 as JSON text.

    Raises:
        LeaseLostError: The lease is not the caller's.
        NotFoundError: No such part, or it was registered without a manifest.
    """
    with services.database.read() as tx:
        _, validation = find_own_attempt(tx, key, actor=actor)
        statement = select(parts.c.header, parts.c.manifest_id).where(
            parts.c.checkpoint_id == validation.checkpoint_id, parts.c.name == part
        )
        row = tx.execute(statement).one_or_none()
        if row is None or row.manifest_id is None:
            msg = f"no manifest of part {part!r}"
            raise NotFoundError(msg)
        body = manifest_body(tx, row.manifest_id)
    return unpack_manifest(row.header, body)
