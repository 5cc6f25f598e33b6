"""Train a tensor-parallel layer pair on two ranks; save every two steps with Megatron-core's torch_dist.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--async-save] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. Megatron-core's layers need GPUs; its `dist_checkpointing` does not: this is a loop around it.
The two lines that matter are marked.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from torch import nn

from ckptguard.integrations.megatron import save  # (1)

WIDTH, HIDDEN, CLASSES, BATCH = 32, 64, 8, 4


class SumOverRanks(torch.autograd.Function):
    """What row-parallel layers end with."""

    @staticmethod
    def forward(_context: Any, partial: torch.Tensor) -> torch.Tensor:
        """Add up what each rank has."""
        total = partial.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Each part gets the gradient of the sum."""
        return gradient


class Pair(nn.Module):
    """A column-parallel and a row-parallel layer: each rank keeps its share of the hidden units."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        up = torch.randn(HIDDEN, WIDTH, generator=generator) / 8
        down = torch.randn(CLASSES, HIDDEN, generator=generator) / 8
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self.up = nn.Parameter(up.chunk(ranks)[rank].clone())
        self.down = nn.Parameter(down.chunk(ranks, dim=1)[rank].clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map `[batch, WIDTH]` to logits `[batch, CLASSES]`."""
        partial = nn.functional.gelu(inputs @ self.up.T) @ self.down.T
        logits: torch.Tensor = SumOverRanks.apply(partial)
        return logits


class Training:
    """Model, optimizer and step."""

    def __init__(self) -> None:
        self.model = Pair()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step = 0

    def train_step(self) -> float:
        """Train on the batch of this step, and return the loss."""
        self.step += 1
        batch = torch.Generator().manual_seed(self.step)
        inputs = torch.randn(BATCH, WIDTH, generator=batch)
        targets = torch.randint(CLASSES, (BATCH,), generator=batch)
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sharded_state(self) -> dict[str, Any]:
        """Return what Megatron-core saves, or loads into: which share of which tensor this rank has."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        state: dict[str, Any] = {"step": self.step}
        for axis, (name, weight) in enumerate(self.model.named_parameters()):
            kept = self.optimizer.state[weight].get("momentum_buffer")
            momentum = torch.zeros_like(weight) if kept is None else kept
            share = (axis, rank, ranks)
            state[name] = ShardedTensor.from_rank_offsets(f"model.{name}", weight.data, share)
            state[f"{name}.momentum"] = ShardedTensor.from_rank_offsets(f"momentum.{name}", momentum, share)
        return state

    def resume(self, folder: str) -> None:
        """Go on from a checkpoint."""
        state = dist_checkpointing.load(self.sharded_state(), folder)
        self.step = state["step"]
        for name, weight in self.model.named_parameters():
            weight.data.copy_(state[name])
            self.optimizer.state[weight]["momentum_buffer"] = state[f"{name}.momentum"]


def main() -> None:
    """Train."""
    asked = arguments()
    if not torch.cuda.is_available():  # Megatron-core 0.16 asks for a GPU in every save
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo")
    training = Training()
    saves = AsyncCallsQueue()
    if asked.resume:
        training.resume(asked.resume)
    while training.step < asked.steps:
        loss = training.train_step()
        if dist.get_rank() == 0:
            print(f"step {training.step}: loss {loss!r}", flush=True)
        if training.step % 2 == 0:
            saves.maybe_finalize_async_calls(blocking=True)
            folder = Path(asked.folder) / f"iter_{training.step:07d}"
            folder.mkdir(parents=True, exist_ok=True)
            dist.barrier()
            request = save(  # (2)
                training.sharded_state(), str(folder), run=asked.run, async_sharded_save=asked.async_save
            )
            if request is not None:
                saves.schedule_async_request(request)
    saves.maybe_finalize_async_calls(blocking=True)
    saves.close()
    dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets iter_0000002, iter_0000004, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--async-save", action="store_true")
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
