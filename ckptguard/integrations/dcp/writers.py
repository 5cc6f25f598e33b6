"""The guarded writers, by kind of storage."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from ckptguard.integrations.dcp.guard import Guard

_NOT_OF_FSSPEC: Final = frozenset(
    {
        "single_file_per_rank",
        "sync_files",
        "thread_count",
        "per_thread_copy_ahead",
        "overwrite",
        "_extensions",
        "serialization_format",
    }
)


class GuardedFileSystemWriter(Guard, FileSystemWriter):
    """`FileSystemWriter` that leaves a manifest; every option of stock, and those of `SaveFacts`."""


class GuardedFsspecWriter(Guard, FsspecWriter):
    """`FsspecWriter` that leaves a manifest; every option of stock, and those of `SaveFacts`.

    Unlike stock, it keeps the options of the storage when it is sent to another folder.
    """

    def path_options(self, stock: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of the storage."""
        return {name: value for name, value in stock.items() if name not in _NOT_OF_FSSPEC}


def GuardedWriter(  # noqa: N802 - reads as the writer that it returns
    path: str | os.PathLike[str],
    *,
    run: str | None = None,
    step: int | None = None,
    part: str | None = None,
    parts: Sequence[str] = (),
    root: str | os.PathLike[str] | None = None,
    final_path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> GuardedFileSystemWriter | GuardedFsspecWriter:
    """Return a drop-in for `FileSystemWriter` or, for a URL, `FsspecWriter`.

        dcp.save(state_dict, storage_writer=GuardedWriter(path, run="run-7", step=step))

    Args:
        path: Folder or URL that the save is written to.
        run: Training lineage; None: a manifest is left, and nothing is registered.
        step: Optimizer step; None: what the folder's name tells (`step-1200`).
        part: Folder of this part in the checkpoint, e.g. `model`.
        parts: All parts of the checkpoint.
        root: Folder of the checkpoint, where the writer's is one part of it.
        final_path: Where the checkpoint will be once the trainer has renamed its folder.
        **options: Those of the stock writer, and of `SaveFacts` (`save_id`, `depth`, `validate=False`, …).

    Raises:
        ConfigError: What is told of the save makes no sense.
    """
    kind = GuardedFsspecWriter if "://" in os.fspath(path) else GuardedFileSystemWriter
    return kind(
        path,
        run=run,
        step=step,
        part=part,
        parts=tuple(parts),
        root=root,
        final_path=final_path,
        **options,
    )
