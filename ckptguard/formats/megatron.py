"""Megatron-core's files beside a DCP save: `metadata.json`, which makes it one, and `common.pt`.

`metadata.json` is written after the shards, by rank 0 alone; without it Megatron says "is not
a distributed checkpoint" (NVIDIA/Megatron-LM#1530). Newer versions keep what was `common.pt`
in an item `common_state`.

Source: megatron-core 0.16 dist_checkpointing/core.py (`maybe_load_config`), strategies/common.py.
"""

from typing import Any, Final

from ckptguard.formats.dcp_metadata import MetadataTables
from ckptguard.formats.metadata_files import parse_json, read_file
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

CONFIG: Final = "metadata.json"
COMMON: Final = "common.pt"
_MAX_CONFIG_BYTES: Final = 64 << 10
_PLAN: Final = "torch.distributed.checkpoint.planner.SavePlan"
"""Only Megatron's writer stores its plans in `.metadata` (facts.md §d)."""


def check_megatron(
    store: Store, listing: Listing, limits: Limits, tables: MetadataTables
) -> tuple[Finding, ...]:
    """Report what Megatron's loader would miss in a DCP folder that Megatron wrote.

    Args:
        store: Where it lies.
        listing: Of the folder.
        limits: Bounds on metadata.
        tables: What `.metadata` says.

    Raises:
        StoreError: The store did not deliver.
    """
    stat = listing.files.get(CONFIG)
    is_megatron = COMMON in listing.files or _PLAN in tables.globals
    if stat is None:
        is_told = not is_megatron or CONFIG in listing.escapes
        return () if is_told else (_not_committed(),)
    if stat.length_bytes > _MAX_CONFIG_BYTES:  # somebody else's
        return ()
    data, _ = read_file(store, listing, CONFIG, limits)
    config, faults = parse_json(data, file=CONFIG)
    if config is None:
        return faults if is_megatron else ()
    return (_no_common(),) if _lacks_common(config, listing, tables) else ()


def _lacks_common(config: dict[str, Any], listing: Listing, tables: MetadataTables) -> bool:
    if config.get("sharded_backend") != "torch_dist" or config.get("common_backend") != "torch":
        return False
    is_here = COMMON in listing.files or COMMON in listing.escapes
    return not is_here and not any(fqn.startswith("common_state") for fqn in tables.objects)


def _no_common() -> Finding:
    return Finding(
        code=FindingCode.MISSING_SHARD,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"missing {COMMON}: {CONFIG} says that Megatron keeps in it what is not sharded",
        file=COMMON,
        expected=f"{COMMON}, a torch.save file",
        observed="no such file",
    )


def _not_committed() -> Finding:
    return Finding(
        code=FindingCode.NOT_COMMITTED,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"written by Megatron, which does not take it for a checkpoint without its {CONFIG}",
        file=CONFIG,
        expected=CONFIG,
        observed="no such file",
        is_retryable=True,
    )
