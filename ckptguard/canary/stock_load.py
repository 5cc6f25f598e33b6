"""`--load stock`: torch's own reader and planner, run on what our pass has found sound.

Stock `dcp.load` unpickles `.metadata` and every object, so the parent asks for this only
after every byte was verified and every global in it is one that we know (design §3).
Imports torch: only the canary child loads this module.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.storage import StorageReader

from ckptguard.model.layout import Layout


def load(folders: Sequence[tuple[str, Layout]]) -> int:
    """Load each part whole, into memory that stock allocates itself.

    Args:
        folders: Path or URL of each part, and its layout.

    Returns:
        Entries that the metadata of the loaded parts declares.

    Raises:
        torch.distributed.checkpoint.api.CheckpointException: A `BaseException`: stock failed.
    """
    for folder, _ in folders:
        state: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The empty planner takes every entry that the metadata lists: the whole part.
            planner = _EmptyStateDictLoadPlanner()  # type: ignore[no-untyped-call] # torch's
            _load_state_dict(state, storage_reader=_reader(folder), planner=planner, no_dist=True)
    return sum(len(layout.tensors) + len(layout.objects) for _, layout in folders)


def _reader(folder: str) -> StorageReader:
    if "://" not in folder:
        return FileSystemReader(folder)
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader  # noqa: PLC0415 - needs fsspec

    return FsspecReader(folder)
