"""Train with Lightning's ModelParallelStrategy and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. The two lines that matter are marked.
"""

import argparse
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from ckptguard.integrations.lightning import GuardedModelParallelStrategy  # (1)

WIDTH, CLASSES, BATCH = 32, 8, 4


class Classifier(LightningModule):
    """Guesses classes of random vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES))

    def configure_model(self) -> None:
        """Apply FSDP2."""
        fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> Any:
        """Return AdamW with a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, _batch: Any, _index: int) -> torch.Tensor:
        """Train on the batch that belongs to this step and rank, and print the loss of rank 0."""
        generator = torch.Generator().manual_seed(1000 * self.global_step + self.global_rank)
        inputs = torch.randn(BATCH, WIDTH, generator=generator).to(self.device)
        targets = torch.randint(CLASSES, (BATCH,), generator=generator).to(self.device)
        loss = nn.functional.cross_entropy(self.layers(inputs), targets)
        if self.global_rank == 0:
            print(f"step {self.global_step + 1}: loss {loss.item()!r}", flush=True)
        return loss


def main() -> None:
    """Train."""
    asked = arguments()
    seed_everything(0, verbose=False)
    trainer = Trainer(
        accelerator="auto",
        devices=2,
        strategy=GuardedModelParallelStrategy(  # (2)
            data_parallel_size=2, tensor_parallel_size=1, run=asked.run
        ),
        max_steps=asked.steps,
        callbacks=[
            ModelCheckpoint(dirpath=asked.folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    turns = DataLoader(range(1000), batch_size=1)  # each step makes its own batch
    trainer.fit(Classifier(), turns, ckpt_path=asked.resume, weights_only=False if asked.resume else None)


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets step=2.ckpt, step=4.ckpt, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
