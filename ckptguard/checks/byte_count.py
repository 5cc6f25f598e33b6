"""Check 2, without a manifest: has every file the bytes that the metadata refers to?"""

from collections.abc import Iterator, Sequence
from functools import partial

from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import counted, item_in_words
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Item, Layout, Shard
from ckptguard.storage.listing import Listing

_error = partial(Finding, check=CheckName.BYTE_COUNT, severity=Severity.ERROR, basis=Basis.DAMAGE)
_warning = partial(Finding, check=CheckName.BYTE_COUNT, severity=Severity.WARNING)


def check_byte_counts(layouts: Sequence[Layout], listing: Listing) -> tuple[Finding, ...]:
    """Report every shard that is shorter, or of another length, than its metadata says.

    Where the metadata only bounds the length from below (DCP), a longer file is a
    warning: no writer leaves a tail, and stock torch loads it with the right values
    (facts.md §c). Where the format fixes the length (safetensors), it is an error:
    the reader refuses such a file. Shards that are not listed are check 1's business.

    Args:
        layouts: All parts of one checkpoint; paths relative to its root.
        listing: That root.

    Returns:
        Findings of check 2, bounded per kind.
    """
    shards = (shard for layout in layouts for shard in layout.shards)
    here = (
        (shard, listing.files[shard.path].length_bytes) for shard in shards if shard.path in listing.files
    )
    return bounded(finding for shard, length_bytes in here for finding in _check_length(shard, length_bytes))


def _check_length(shard: Shard, length_bytes: int) -> Iterator[Finding]:
    least = max(shard.min_length_bytes, shard.exact_length_bytes or 0)
    if length_bytes < least:
        yield _short(shard, length_bytes, least)
    elif shard.exact_length_bytes is not None and length_bytes > shard.exact_length_bytes:
        yield _error(
            code=FindingCode.LONG_SHARD,
            message=f"{shard.path} is {counted(length_bytes - shard.exact_length_bytes, 'byte')} longer"
            " than its format allows; readers refuse it",
            file=shard.path,
            offset=shard.exact_length_bytes,
            length_bytes=length_bytes - shard.exact_length_bytes,
            expected=f"exactly {shard.exact_length_bytes} bytes",
            observed=f"{length_bytes} bytes",
        )
    elif shard.exact_length_bytes is None and length_bytes > least:
        yield _warning(
            code=FindingCode.LONG_SHARD,
            message=f"{shard.path} has {counted(length_bytes - least, 'byte')} after its last item,"
            " which no load reads",
            file=shard.path,
            offset=least,
            length_bytes=length_bytes - least,
            expected=f"{least} bytes",
            observed=f"{length_bytes} bytes",
        )


def _short(shard: Shard, length_bytes: int, least: int) -> Finding:
    beyond = [item for item in shard.items if item.offset + item.length_bytes > length_bytes]
    first = beyond[0] if beyond else None
    part = first.slice if first else None
    return _error(
        code=FindingCode.SHORT_SHARD,
        message=_short_in_words(shard, length_bytes, least, beyond),
        file=shard.path,
        offset=length_bytes,
        length_bytes=least - length_bytes,
        fqn=first.fqn if first else None,
        slice_offsets=part.offsets if part else None,
        slice_sizes=part.sizes if part else None,
        expected=f"{'exactly' if shard.exact_length_bytes is not None else 'at least'} {least} bytes",
        observed=f"{length_bytes} bytes",
    )


def _short_in_words(shard: Shard, length_bytes: int, least: int, beyond: Sequence[Item]) -> str:
    if length_bytes == 0:
        return f"{shard.path} is 0 bytes, {counted(len(shard.items), 'item')} expected"
    short = f"{shard.path} is short by {counted(least - length_bytes, 'byte')}"
    if not beyond:
        return f"{short}: {least} expected"
    first = beyond[0]
    more = f", and {counted(len(beyond) - 1, 'more item')} end later" if len(beyond) > 1 else ""
    return f"{short}: {item_in_words(first)} ends at {first.offset + first.length_bytes}{more}"
