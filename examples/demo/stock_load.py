"""Load two checkpoints with stock `dcp.load` and say where their values differ.

    python stock_load.py GOOD DAMAGED

Prints one JSON object: `{"tensor", "index", "right", "wrong", "differing"}`; exit 0 if stock
torch accepted both. Only for checkpoints that you made yourself: stock torch unpickles what it loads.
"""

import json
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from model import Transformer


def main(good: str, damaged: str) -> None:
    """Load both and print the first value that differs."""
    warnings.simplefilter("ignore")  # "assuming a single process": that is meant
    right, wrong = stock_load(good), stock_load(damaged)
    differing = [name for name in right if not torch.equal(right[name], wrong[name])]
    if not differing:
        sys.stdout.write(json.dumps({"differing": 0}))
        return
    name = differing[0]
    index = (right[name] != wrong[name]).nonzero()[0].tolist()
    sys.stdout.write(
        json.dumps(
            {
                "tensor": name,
                "index": index,
                "right": right[name][tuple(index)].item(),
                "wrong": wrong[name][tuple(index)].item(),
                "differing": int((right[name] != wrong[name]).sum()),
            }
        )
    )


def stock_load(folder: str) -> dict[str, torch.Tensor]:
    """Return the model's tensors as stock torch loads them, without a warning or an error."""
    state = {"model": Transformer().state_dict()}
    dcp.load(state, checkpoint_id=folder)
    return {f"model.{name}": tensor for name, tensor in state["model"].items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
