"""torchtitan: its checkpoint manager, with guarded saves.

In the module that `--experimental.custom_import` names:

    torchtitan.train.CheckpointManager = partial(GuardedCheckpointManager, run="run-7")

Source: torchtitan 0.2.2, components/checkpoint.py: `dcp_save` is all that calls DCP to save.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save
from torchtitan.components.checkpoint import OPTIMIZER, AsyncMode, CheckpointManager
from torchtitan.tools.utils import GarbageCollection

from ckptguard.integrations.dcp import GuardedWriter

if TYPE_CHECKING:
    from torch.distributed.checkpoint.staging import AsyncStager


class GuardedCheckpointManager(CheckpointManager):
    """`CheckpointManager` whose DCP saves leave a manifest and are registered.

    As stock: exports to safetensors, and the data loaders of single replicas (TorchFT). A save of the
    model alone gets a manifest and is not registered: nothing can resume from it.

    Args:
        *args: Of stock.
        run: Training lineage; None: manifests are left, and nothing is registered.
        facts: Others of `SaveFacts` that hold for every save.
        **options: Of stock.
    """

    def __init__(
        self, *args: Any, run: str | None = None, facts: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._run, self._facts = run, facts or {}
        self._own_stager: AsyncStager | None = None

    @torch.no_grad()
    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: AsyncMode,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Any:
        """Save as stock does, through a guarded writer."""
        if to_hf or not self._is_of_the_run(checkpoint_id):
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)
        run = self._run if OPTIMIZER in state_dict else None
        writer = GuardedWriter(checkpoint_id, run=run, **self._facts)
        saving = self._save(state_dict, writer, AsyncMode(async_mode))
        if enable_garbage_collection:
            GarbageCollection.collect("GC collection invoked by checkpointer.")
        return saving

    def close(self) -> None:
        """Close as stock does."""
        super().close()
        stager = getattr(self, "_own_stager", None)  # stock calls this from `__del__` too
        if stager is not None:
            stager.close()

    def _save(self, state_dict: dict[str, Any], writer: Any, mode: AsyncMode) -> Any:
        if mode is AsyncMode.DISABLED:
            return save(state_dict, storage_writer=writer)
        is_pinned = mode is AsyncMode.ASYNC_WITH_PINNED_MEM
        executor = AsyncCheckpointerType.PROCESS if is_pinned else AsyncCheckpointerType.THREAD
        return async_save(
            state_dict,
            storage_writer=writer,
            process_group=self.pg,
            async_checkpointer_type=executor,
            async_stager=self.stager if is_pinned else self._stager(),
        )

    def _stager(self) -> "AsyncStager":
        """Return what torch takes where no writer is given: one that is given would stage, and block."""
        if self._own_stager is None:
            self._own_stager = DefaultStager(
                StagingOptions(
                    use_pinned_memory=False,
                    use_shared_memory=False,
                    use_async_staging=False,
                    use_non_blocking_copy=False,
                )
            )
        return self._own_stager

    def _is_of_the_run(self, checkpoint_id: str) -> bool:
        return Path(checkpoint_id).parent == Path(self.folder)
