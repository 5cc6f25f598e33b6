"""Train with OLMo-core's trainer and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--save-async] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. The two lines that matter are marked.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from olmo_core.data import DataLoaderBase
from olmo_core.train import (
    Duration,
    LoadStrategy,
    Trainer,
    prepare_training_environment,
    teardown_training_environment,
)
from olmo_core.train.callbacks import CheckpointerCallback
from olmo_core.train.train_module import BasicTrainModule
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ckptguard.integrations.olmo_core import GuardedCheckpointer  # (1)

VOCABULARY, CONTEXT, BATCH = 128, 16, 2


class Tokens(DataLoaderBase):
    """Random sequences; those of a step and rank are always the same."""

    total_batches = 1000

    def reshuffle(self, epoch: int | None = None, **_options: Any) -> None:
        """Do nothing but count."""
        self._epoch = epoch or 1

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands."""
        return {"batches_processed": self.batches_processed, "epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there."""
        self.batches_processed, self._epoch = state_dict["batches_processed"], state_dict["epoch"]

    def get_mock_batch(self) -> dict[str, Any]:
        """Return any batch."""
        return self._batch(0)

    def _iter_batches(self) -> Iterator[dict[str, Any]]:
        while self.batches_processed < self.total_batches:
            yield self._batch(self.batches_processed)

    def _batch(self, turn: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1000 * turn + self.dp_rank)
        return {"input_ids": torch.randint(VOCABULARY, (BATCH, CONTEXT), generator=generator)}


class Guesser(nn.Module):
    """Guesses the next token from the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(VOCABULARY, 32)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, VOCABULARY))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        logits: torch.Tensor = self.layers(self.embeddings(input_ids))
        return logits


class TrainModule(BasicTrainModule):
    """Trains any model that returns logits."""

    def global_num_flops_in_batch(self, _batch: dict[str, Any]) -> None:
        """Count none."""


class PrintingTrainer(Trainer):
    """Prints each loss, and records no metrics.

    OLMo-core 3.0.0 adds the duration of an asynchronous save to the metrics of whatever step each rank is at
    then, and reduces them as if they were of one: with steps as short as these, training hangs.
    """

    def record_ce_loss(self, value: float | torch.Tensor, **_options: Any) -> None:
        """Print that of rank 0."""
        if dist.get_rank() == 0:
            print(f"step {self.global_step}: loss {float(value)!r}", flush=True)

    def record_metric(self, *_metric: Any, **_options: Any) -> None:
        """Do nothing."""


def main() -> None:
    """Train."""
    asked = arguments()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    prepare_training_environment(seed=0, backend=backend, shared_filesystem=True)
    model = Guesser()
    fully_shard(model, mesh=init_device_mesh(kind, (dist.get_world_size(),)))
    saves = CheckpointerCallback(
        save_interval=2, save_async=asked.save_async, max_checkpoints=None, pre_train_checkpoint=False
    )
    trainer = PrintingTrainer(
        work_dir=asked.folder,
        train_module=TrainModule(model, torch.optim.AdamW(model.parameters(), lr=1e-2), BATCH * CONTEXT),
        data_loader=Tokens(
            work_dir=asked.folder,
            global_batch_size=BATCH * CONTEXT * dist.get_world_size(),
            dp_world_size=dist.get_world_size(),
            dp_rank=dist.get_rank(),
        ),
        device=torch.device(kind),
        save_folder=asked.folder,
        checkpointer=GuardedCheckpointer(  # (2)
            work_dir=asked.folder, save_overwrite=True, run=asked.run
        ),
        callbacks={"checkpointer": saves},
        max_duration=Duration.steps(asked.steps),
        load_strategy=LoadStrategy.never,  # by itself it would take the newest
    )
    if asked.resume:
        trainer.load_checkpoint(asked.resume, load_trainer_state=True, load_optim_state=True)
    trainer.fit()
    teardown_training_environment()


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets step2, step4, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-async", action="store_true")
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
