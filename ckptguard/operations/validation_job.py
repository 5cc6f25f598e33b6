"""What a supervisor asks of its validation child, and how it crosses the pipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptguard.errors import CanaryError, FormatError
from ckptguard.model.policy import Policy
from ckptguard.model.policy_json import policy_from_json, policy_to_json
from ckptguard.operations.frames import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationJob:
    """One validation in one child.

    Args:
        url: Root of the store on this machine; nothing outside is opened.
        path: The checkpoint in it.
        options: Endpoint and credentials of this store, as `open_location` takes them; JSON values.
        policy: Everything that may change the verdict besides the bytes.
        manifests: Texts of the manifests to hold it against, by folder; "" is the whole.
        is_from_writer: The manifests came from the writer; else they prove no provenance (design §3).
        known: Results of files that earlier attempts told, as JSON values.
        memory_bytes: Address space of the child; None: not bounded.
    """

    url: str
    path: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    policy: Policy = field(default_factory=Policy)
    manifests: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    is_from_writer: bool = False
    known: Sequence[Mapping[str, Any]] = ()
    memory_bytes: int | None = None


def job_to_frame(job: ValidationJob) -> Frame:
    """Return a job as a message; the manifests are its body."""
    return Frame(
        header={
            "url": job.url,
            "path": job.path,
            "options": dict(job.options),
            "policy": policy_to_json(job.policy),
            "manifests": [[folder, len(text)] for folder, text in job.manifests.items()],
            "is_from_writer": job.is_from_writer,
            "known": list(job.known),
            "memory_bytes": job.memory_bytes,
        },
        body=b"".join(job.manifests.values()),
    )


def job_from_frame(frame: Frame) -> ValidationJob:
    """Rebuild what `job_to_frame` made.

    Raises:
        CanaryError: It is no job.
    """
    try:
        header = dict(frame.header)
        manifests: dict[str, bytes] = {}
        at = 0
        for folder, length in header.pop("manifests"):
            manifests[folder] = frame.body[at : at + length]
            at += length
        policy = policy_from_json(header.pop("policy"))
        return ValidationJob(policy=policy, manifests=manifests, **header)
    except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
        msg = f"no job: {type(error).__name__}: {error}"
        raise CanaryError(msg) from error
