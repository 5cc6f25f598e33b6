"""One job for all ranks of a group: rank 0 has it, the others take it from rank 0.

`.metadata` is read once, in one process of one machine, and passed on (design §4).
Imports torch: only the canary child loads this module.
"""

import io
from dataclasses import replace

import torch
import torch.distributed as dist

from ckptguard.canary.job import CanaryJob, job_bytes, read_job


def shared_job(job: CanaryJob, *, device: torch.device) -> CanaryJob:
    """Return rank 0's job on every rank. A collective: all ranks of the group call it.

    As bytes, read by our own parser: torch's `broadcast_object_list` would unpickle them.

    Args:
        job: This rank's own; what it says of the checkpoint matters on rank 0 only.
        device: Of this rank; NCCL moves nothing else.

    Raises:
        CanaryError: What came is no job.
    """
    is_first = dist.get_rank() == 0
    told = replace(job, target="", store_root=None, options={})  # each rank reaches the store by itself
    body = torch.frombuffer(bytearray(job_bytes(told)), dtype=torch.uint8) if is_first else None
    length = torch.tensor([0 if body is None else body.numel()], device=device)
    dist.broadcast(length, src=0)
    on_device = torch.empty(int(length), dtype=torch.uint8, device=device)
    if body is not None:
        on_device.copy_(body)
    dist.broadcast(on_device, src=0)
    return read_job(io.BytesIO(on_device.cpu().numpy().tobytes()))
