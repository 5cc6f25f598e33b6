"""What the service is told of a save: before it begins, and when it is committed."""

import os
from typing import Any

from ckptguard.client.address import PROJECT_VARIABLE, URL_VARIABLE
from ckptguard.client.call import Call
from ckptguard.client.calls import announce as announce_call
from ckptguard.client.decode import parse_json
from ckptguard.integrations.dcp.save_facts import Place, SaveFacts
from ckptguard.integrations.known_start import KnownStart
from ckptguard.integrations.registration.entry import Entry, digest_of
from ckptguard.model.manifest import MANIFEST_NAME, Manifest
from ckptguard.operations.register import announced_location
from ckptguard.operations.store_view import parse_stores

STORES_VARIABLE = "CKPTGUARD_STORES"


def announcement(
    facts: SaveFacts, place: Place, save_id: str | None, *, start: KnownStart | None
) -> Call[Any] | None:
    """Return the call that says that a save begins; None where nobody is to be told.

    A save that takes longer than the service keeps an announcement alive counts as incomplete until it is
    registered: a launcher must not wait longer than that for a job that died while it saved.

    Args:
        facts: As the user told them.
        place: Of the save.
        save_id: Of the save; None: not known yet.
        start: Of the job; None: nobody told.
    """
    if facts.run is None or place.step is None or not facts.is_announced:
        return None
    return announce_call(
        facts.run,
        step=place.step,
        location=_location(place),
        save_id=save_id,
        branch=_branch(facts, start),
    )


def registration(
    facts: SaveFacts, place: Place, manifest: Manifest, written: bytes, *, start: KnownStart | None
) -> Entry:
    """Return what the service is told of a committed save.

    Args:
        facts: As the user told them, with a run.
        place: Of the save.
        manifest: As it was left.
        written: Its bytes.
        start: Of the job; None: nobody told.

    Raises:
        ConfigError: The stores of the environment, or the location, cannot be used.
    """
    inside = f"{place.part}/{MANIFEST_NAME}" if place.part is not None else MANIFEST_NAME
    return Entry(
        run=manifest.run,
        step=manifest.step,
        save_id=manifest.save_id,
        location=_location(place),
        manifest=parse_json(written),
        manifest_at=f"{place.final_root}/{inside}",
        manifest_digest=digest_of(written),
        manifest_bytes=len(written),
        saved_at=manifest.created_at,
        depth=facts.depth,
        is_validated=facts.is_validated,
        branch=_branch(facts, start),
        is_branch_inherited=facts.branch is None,
        service=(os.environ.get(URL_VARIABLE) or "").rstrip("/") or None,
        project=os.environ.get(PROJECT_VARIABLE) or None,
    )


def _branch(facts: SaveFacts, start: KnownStart | None) -> int | None:
    if facts.branch is not None or start is None:
        return facts.branch
    return start.branch_of(facts.run)


def _location(place: Place) -> dict[str, str]:
    return announced_location(place.final_root, parse_stores(os.environ.get(STORES_VARIABLE, "")))
