"""Composer: its `CheckpointSaver`, with guarded saves.

    Trainer(callbacks=[GuardedCheckpointSaver("run-7", save_interval="500ba", run="run-7")], …)

Composer saves sharded checkpoints (FSDP with `state_dict_type="sharded"`) through stock's writer, the states
of everything else among them, and then points `latest-rank0.pt` at them.
Source: mosaicml 0.32.1, callbacks/checkpoint_saver.py and utils/checkpoint.py (`_save_checkpoint`).
"""

from typing import Any

from composer.callbacks import CheckpointSaver

from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import installed


class GuardedCheckpointSaver(CheckpointSaver):
    """`CheckpointSaver` whose sharded saves leave a manifest and are registered.

    As stock: checkpoints of one file (`state_dict_type="full"`) and, told once, saves to a URL: Composer
    uploads shards by their names, and no manifest with them. A save of the model alone (`weights_only`) gets
    a manifest and is not registered: nothing can resume from it.

    Args:
        *args: Of stock.
        run: Training lineage; None: manifests are left, and nothing is registered.
        facts: Others of `SaveFacts` that hold for every save.
        **options: Of stock.
    """

    __qualname__ = CheckpointSaver.__qualname__
    """Composer names a callback's state by it: checkpoints are loaded by jobs with ckptguard and without."""

    def __init__(
        self, *args: Any, run: str | None = None, facts: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._told = {"run": None if self.weights_only else run, **(facts or {})}

    def _save_checkpoint(self, state: Any, logger: Any) -> None:
        """Save as stock does: every hook of the saver, and the trainer itself, come here."""
        if self.remote_uploader is not None:
            incidents.tell("not_guarded", "Composer uploads no manifest with its shards: use ckptguard adopt")
            super()._save_checkpoint(state, logger)
            return
        with installed(step=int(state.timestamp.batch), **self._told):
            super()._save_checkpoint(state, logger)
