"""Train with torchtitan's checkpoint manager and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--async-mode MODE] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. torchtitan's own trainer needs GPUs; its checkpoint manager does not: this is the loop around it.
The two lines that matter are marked.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.lr_scheduler import LRSchedulersContainer
from torchtitan.components.optimizer import OptimizersContainer
from torchtitan.config import Checkpoint

from ckptguard.integrations.torchtitan import GuardedCheckpointManager  # (1)

WIDTH, CLASSES, BATCH = 32, 8, 4


class Progress(Stateful):
    """The step, and the random generator of this rank's batches."""

    def __init__(self) -> None:
        self.step = 0
        self.batches = torch.Generator().manual_seed(dist.get_rank())

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {"step": self.step, f"batches_{dist.get_rank()}": self.batches.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.step = state_dict["step"]
        self.batches.set_state(state_dict[f"batches_{dist.get_rank()}"])


def main() -> None:
    """Train."""
    asked = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizers = OptimizersContainer([model], torch.optim.AdamW, {"lr": 1e-2})
    schedulers = LRSchedulersContainer(optimizers, lambda step: 1.0 / (1 + step))
    progress = Progress()
    checkpointer = GuardedCheckpointManager(  # (2)
        dataloader=None,
        model_parts=[model],
        optimizers=optimizers,
        lr_schedulers=schedulers,
        states={"train_state": progress},
        checkpoint_config=Checkpoint(
            enable=True, interval=2, last_save_model_only=False, async_mode=asked.async_mode, keep_latest_k=0
        ),
        sd_adapter=None,
        base_folder=asked.folder,
        run=asked.run,
    )
    if asked.resume:
        checkpointer.load(step=int(Path(asked.resume).name.removeprefix("step-")))
    while progress.step < asked.steps:
        progress.step += 1
        loss = train_step(model, progress.batches)
        checkpointer.maybe_wait_for_staging()
        optimizers.step()
        schedulers.step()
        if dist.get_rank() == 0:
            print(f"step {progress.step}: loss {loss!r}", flush=True)
        optimizers.zero_grad()
        checkpointer.save(progress.step, last_step=progress.step == asked.steps)
    checkpointer.close()
    dist.destroy_process_group()


def train_step(model: nn.Module, batches: torch.Generator) -> float:
    """Guess classes of random vectors, and return the loss."""
    inputs = torch.randn(BATCH, WIDTH, generator=batches)
    targets = torch.randint(CLASSES, (BATCH,), generator=batches)
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    return loss.item()


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets checkpoint/step-2, checkpoint/step-4, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    modes = ["disabled", "async", "async_with_pinned_mem"]
    parser.add_argument("--async-mode", default="disabled", choices=modes)
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
