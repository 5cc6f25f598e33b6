"""Lightning: sharded checkpoints of `ModelParallelStrategy` and `FSDPStrategy`.

    Trainer(strategy=GuardedModelParallelStrategy(run="run-7"), …)

Both save through DCP with a writer that torch chooses, and then write `meta.pt` (loops, callbacks,
schedulers), without which nothing resumes: so a save is registered after that.
Source: lightning 2.6, pytorch/strategies/model_parallel.py and fsdp.py (`save_checkpoint`).
"""

from typing import TYPE_CHECKING, Any

from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from ckptguard.integrations.dcp import discard, installed, release

if TYPE_CHECKING:
    from lightning.pytorch.strategies import ParallelStrategy as Stock
else:
    Stock = object


class _Guarded(Stock):
    """Stands before a strategy in the bases of a class.

    Args:
        run: Training lineage; None: a manifest is left, and nothing is registered.
        facts: Others of `SaveFacts` that hold for every save.
        **options: Of the strategy.
    """

    def __init__(
        self, *args: Any, run: str | None = None, facts: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._told = {"run": run, **(facts or {})}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Save as the strategy does, guarded where it saves sharded."""
        discard()  # of a save that failed half-way
        with installed(step=checkpoint["global_step"], hold=True, **self._told):
            super().save_checkpoint(checkpoint, filepath, storage_options)
        release()


class GuardedModelParallelStrategy(_Guarded, ModelParallelStrategy):
    """`ModelParallelStrategy` whose distributed saves leave a manifest and are registered."""


class GuardedFSDPStrategy(_Guarded, FSDPStrategy):
    """`FSDPStrategy` whose saves with `state_dict_type="sharded"` leave a manifest and are registered."""
