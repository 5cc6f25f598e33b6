"""Two saves in one folder at once, of which neither left its manifest.

A job that was given up may still save while the restarted one saves into the same folder. Where the one dies
right after its `.metadata`, and the other before its own, sizes, CRCs and coverage may all hold, and the
shards be of both. Only the markers of the two saves tell.
"""

from collections.abc import Iterable
from typing import Final

from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.saving_marker import is_marker_of, is_saving_marker
from ckptguard.storage.listing import Listing

_MAX_TOLD: Final = 8


def check_overlap(layouts: Iterable[Layout], listing: Listing) -> tuple[Finding, ...]:
    """Report metadata whose save has not finished, in a folder where another has not finished either.

    A marker of another save alone says nothing: a save by a stock writer since then leaves it where it is.
    Not to be asked where a save-time manifest proves the bytes.

    Args:
        layouts: Each is judged by itself.
        listing: The checkpoint's root.

    Returns:
        At most one finding per layout.
    """
    judged = (_judge(layout, listing) for layout in layouts)
    return tuple(finding for finding in judged if finding is not None)


def _judge(layout: Layout, listing: Listing) -> Finding | None:
    if layout.save_id is None or not layout.metadata_files:
        return None
    file = layout.metadata_files[0].path
    folder = file.rpartition("/")[0]
    markers = sorted(
        path for path in listing.files if path.rpartition("/")[0] == folder and is_saving_marker(path)
    )
    own = [path for path in markers if is_marker_of(path, layout.save_id)]
    if not own or len(markers) == 1:
        return None
    return Finding(
        code=FindingCode.UNFINISHED_MARKER,
        check=CheckName.PROVENANCE,
        severity=Severity.UNKNOWN,
        message=f"{len(markers)} saves began here and none has finished, the one of {file} neither:"
        " its shards may be of several saves",
        file=file,
        expected=f"{own[0]} alone, or a manifest",
        observed=", ".join(markers[:_MAX_TOLD]),
        is_retryable=True,
    )
