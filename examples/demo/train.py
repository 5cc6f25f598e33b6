"""Train three steps on four ranks and save a sharded checkpoint after each, as a training job does.

    torchrun --nproc-per-node=4 train.py FOLDER

Writes FOLDER/step-1, FOLDER/step-2 and FOLDER/step-3. Nothing here knows ckptguard: these are the
checkpoints of a stranger.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from model import CONTEXT, VOCABULARY, Transformer
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 3
BATCH = 2


def main(folder: str) -> None:
    """Train and save."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = shard(Transformer(), world_size=dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        loss = train_step(model, optimizer, batches)
        if dist.get_rank() == 0:
            sys.stdout.write(f"  step {step}: loss {loss:.3f}\n")
        save(model, optimizer, step=step, folder=f"{folder}/step-{step}")
    dist.destroy_process_group()


def shard(model: Transformer, *, world_size: int) -> Transformer:
    """Apply FSDP2: every rank keeps a quarter of each tensor."""
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train_step(model: Transformer, optimizer: torch.optim.Optimizer, batches: torch.Generator) -> float:
    """Predict the next of random tokens, once; return the loss."""
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=batches)
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def save(model: Transformer, optimizer: torch.optim.Optimizer, *, step: int, folder: str) -> None:
    """Save model and optimizer through torch.distributed.checkpoint."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state, "train": {"step": step}}, checkpoint_id=folder)


if __name__ == "__main__":
    main(sys.argv[1])
