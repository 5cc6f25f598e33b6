"""Train with Composer and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. The two lines that matter are marked.
"""

import argparse
from typing import Any

import torch
from composer import ComposerModel, Trainer
from composer.core import Callback
from composer.utils import dist
from composer.utils.parallelism import FSDP2Config, ParallelismConfig
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ckptguard.integrations.composer import GuardedCheckpointSaver  # (1)

WIDTH, CLASSES, BATCH = 32, 8, 4


class Vectors(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random vectors and classes, the same in every process."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        vector = torch.randn(WIDTH, generator=generator)
        return vector, torch.randint(CLASSES, (), generator=generator)


class Classifier(ComposerModel):
    """Guesses classes of random vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES))

    def forward(self, batch: Any) -> torch.Tensor:
        """Return logits."""
        logits: torch.Tensor = self.layers(batch[0])
        return logits

    def loss(self, outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        """Return cross entropy."""
        return nn.functional.cross_entropy(outputs, batch[1])

    def fsdp_wrap_fn(self, module: nn.Module) -> bool:
        """Say what is sharded on its own."""
        return module is self.layers


class PrintLosses(Callback):
    """Prints those of rank 0."""

    def after_loss(self, state: Any, logger: Any) -> None:
        """Print."""
        del logger
        if dist.get_global_rank() == 0:
            print(f"step {state.timestamp.batch.value + 1}: loss {state.loss.item()!r}", flush=True)


def main() -> None:
    """Train."""
    asked = arguments()
    device = "gpu" if torch.cuda.is_available() else "cpu"
    dist.initialize_dist(device)
    torch.manual_seed(0)
    model, data = Classifier(), Vectors()
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters(), lr=1e-2),
        train_dataloader=DataLoader(data, batch_size=BATCH, sampler=dist.get_sampler(data, shuffle=True)),
        max_duration=f"{asked.steps}ba",
        parallelism_config=ParallelismConfig(fsdp2=FSDP2Config(state_dict_type="sharded")),
        device=device,
        seed=0,
        load_path=asked.resume,
        callbacks=[
            PrintLosses(),
            GuardedCheckpointSaver(asked.folder, save_interval="2ba", overwrite=True, run=asked.run),  # (2)
        ],
        progress_bar=False,
    )
    trainer.fit()
    trainer.close()


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets ep0-ba2, ep0-ba4, …, and latest-rank0.pt")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
