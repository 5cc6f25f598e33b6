"""Whether two registrations say the same of a save: said again it is the same, said otherwise a conflict."""

from collections.abc import Iterator, Sequence
from typing import Any

from ckptguard.errors import ConflictError
from ckptguard_api.domain.packed_manifest import PackedManifest
from ckptguard_api.domain.registration import Described


def require_same(*, what: str, differences: Sequence[str]) -> None:
    """Hold a request against what is stored.

    Raises:
        ConflictError: They differ; each difference is told with both sides.
    """
    if differences:
        msg = f"{what} exists with other content: {'; '.join(differences)}"
        raise ConflictError(msg, problems=differences)


def place_differences(row: Any, location: str) -> Iterator[str]:  # noqa: ANN401 - a row of `checkpoints`
    """Yield that the save lies somewhere else."""
    if row.location != location:
        yield f"/location: stored {row.location}, now {location}"


def content_differences(
    row: Any,  # noqa: ANN401 - a row of `checkpoints`
    part: Any,  # noqa: ANN401 - a row of `parts`
    *,
    packed: PackedManifest | None,
    described: Described,
) -> Iterator[str]:
    """Yield how a request contradicts a part that is stored; what one of them leaves open does not."""
    if packed is not None and part.identity is not None and packed.identity != part.identity:
        yield f"/manifest: stored identity {part.identity}, now {packed.identity}"
    for name in Described.__dataclass_fields__:
        stored, now = getattr(row, name), getattr(described, name)
        if None not in (stored, now) and stored != now:
            yield f"/{name}: stored {stored}, now {now}"


def is_better(packed: PackedManifest | None, part: Any) -> bool:  # noqa: ANN401 - a row of `parts`
    """Say whether a manifest of the same bytes proves more than what the part is held against now.

    Whoever watches the store may be faster than the writer; what the writer saw still counts.
    """
    if packed is None:
        return False
    return part.identity is None or (packed.is_from_writer and not part.is_from_writer)
