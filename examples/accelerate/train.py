"""Train with Accelerate and FSDP2 on two ranks; save every two steps, guarded.

    torchrun --nproc-per-node=2 train.py FOLDER NAME [--steps 6] [--resume PATH]

Prints the loss of each step. `--resume "$(ckptguard resume --run NAME --wait 120s)"` goes on from what is
proven good. The two lines that matter are marked.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn

from ckptguard.formats.steps import parse_step
from ckptguard.integrations.accelerate import save_state  # (1)

WIDTH, CLASSES, BATCH = 32, 8, 4


def main() -> None:
    """Train."""
    asked = arguments()
    accelerator = sharding_accelerator()
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    done = 0
    if asked.resume:
        accelerator.load_state(asked.resume)
        done = parse_step(Path(asked.resume).name) or 0
    for step in range(done + 1, asked.steps + 1):
        generator = torch.Generator().manual_seed(1000 * step + accelerator.process_index)
        inputs = torch.randn(BATCH, WIDTH, generator=generator).to(accelerator.device)
        targets = torch.randint(CLASSES, (BATCH,), generator=generator).to(accelerator.device)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            print(f"step {step}: loss {loss.item()!r}", flush=True)
        if step % 2 == 0:
            save_state(accelerator, f"{asked.folder}/checkpoint-{step}", run=asked.run, step=step)  # (2)
    accelerator.end_training()


def sharding_accelerator() -> Accelerator:
    """Return an accelerator that shards on a machine without GPUs too: by itself it does so on GPUs only."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", auto_wrap_policy="no_wrap"
    )
    if torch.cuda.is_available():
        return Accelerator(fsdp_plugin=plugin)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    accelerator.state.fsdp_plugin = plugin
    PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP
    return accelerator


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="gets checkpoint-2, checkpoint-4, …")
    parser.add_argument("run", help="its name in the service")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", help="a checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
