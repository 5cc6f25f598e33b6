"""Train with DeepSpeed ZeRO on two ranks; save every two steps, read back and registered.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--stage 1] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good: the tag is the name of its folder. The two lines that matter are marked.
"""

import argparse
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import nn

from ckptguard.integrations.deepspeed import save_checkpoint  # (1)

WIDTH, CLASSES, BATCH = 32, 8, 4


def main() -> None:
    """Train."""
    asked = arguments()
    torch.manual_seed(0)
    deepspeed.init_distributed(None if torch.cuda.is_available() else "gloo")
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "zero_optimization": {"stage": asked.stage},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    if asked.resume:
        path = Path(asked.resume)
        loaded, _ = engine.load_checkpoint(str(path.parent), tag=path.name)
        if loaded is None:
            msg = f"DeepSpeed found nothing in {path}"  # it says so in a warning only
            raise SystemExit(msg)
    while engine.global_steps < asked.steps:
        loss = train_step(engine)
        if engine.global_rank == 0:
            print(f"step {engine.global_steps}: loss {loss!r}", flush=True)
        if engine.global_steps % 2 == 0:
            save_checkpoint(engine, asked.folder, run=asked.run)  # (2)
    torch.distributed.destroy_process_group()


def train_step(engine: Any) -> float:
    """Train on the batch that belongs to this step and rank, and return the loss."""
    generator = torch.Generator().manual_seed(1000 * engine.global_steps + engine.global_rank)
    inputs = torch.randn(BATCH, WIDTH, generator=generator).to(engine.device)
    targets = torch.randint(CLASSES, (BATCH,), generator=generator).to(engine.device)
    loss = nn.functional.cross_entropy(engine(inputs), targets)
    engine.backward(loss)
    engine.step()
    return float(loss.item())


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets global_step2, global_step4, …, and latest")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--stage", type=int, default=1, choices=[1, 2, 3])
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
