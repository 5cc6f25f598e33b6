"""Guarded writers for `torch.distributed.checkpoint`: the save side of ckptguard (docs/trainer.md).

    dcp.save(state_dict, storage_writer=GuardedWriter(path, run="run-7", step=step))

Each shard is hashed while it is written; `ckptguard.manifest.json` is left as the last file, and
registered in the background. Imports torch: import it where torch is.
"""

from ckptguard.integrations.dcp.guard import ItemsNotWrittenError
from ckptguard.integrations.dcp.install import install, installed, uninstall
from ckptguard.integrations.dcp.save_facts import SaveFacts
from ckptguard.integrations.dcp.writers import GuardedFileSystemWriter, GuardedFsspecWriter, GuardedWriter
from ckptguard.integrations.incidents import counters
from ckptguard.integrations.registration import discard, flush, release

__all__ = [
    "GuardedFileSystemWriter",
    "GuardedFsspecWriter",
    "GuardedWriter",
    "ItemsNotWrittenError",
    "SaveFacts",
    "counters",
    "discard",
    "flush",
    "install",
    "installed",
    "release",
    "uninstall",
]
