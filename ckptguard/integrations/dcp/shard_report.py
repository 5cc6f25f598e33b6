"""What each rank tells the coordinator of its shards, carried by DCP's own gather of write results."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.storage import WriteResult

from ckptguard.integrations.dcp.recording_fs import WrittenFile

_INDEX = "ckptguard.shard_report"


@dataclass(frozen=True)
class ShardReport(WriteResult):
    """One more write result, which stands for no item: `take_reports` removes it again.

    A result of an item could not carry it: a rank without items has none, yet writes an empty shard.

    Args:
        files: What the rank wrote.
    """

    files: tuple[WrittenFile, ...] = ()


def report_of(files: Sequence[WrittenFile]) -> ShardReport:
    """Return the report of one rank."""
    return ShardReport(index=MetadataIndex(_INDEX), size_in_bytes=0, storage_data=None, files=tuple(files))


def take_reports(
    results: Sequence[Sequence[WriteResult]],
) -> tuple[list[list[WriteResult]], list[ShardReport]]:
    """Part the reports from the results, so that nothing of ours gets into `.metadata`.

    Returns:
        The results by rank as stock knows them, and the reports of the ranks that sent one.
    """
    reports = [result for rank in results for result in rank if isinstance(result, ShardReport)]
    stock = [[result for result in rank if not isinstance(result, ShardReport)] for rank in results]
    return stock, reports
