"""DeepSpeed ZeRO: how many ranks saved is said inside the files, and so is at which step.

Every rank loads its own `zero_pp_rank_R_mp_rank_MM_optim_states.pt`. The names alone do not
tell that the last ones are lost. The numbers are read from the pickles as data.

Source: `_get_all_zero_checkpoint_names` and `_load_checkpoint`, deepspeed 0.19
runtime/engine.py; `partition_count` in runtime/zero/stage_1_and_2.py and stage3.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ckptguard.formats.leading_pickle import read_leading_pickle
from ckptguard.formats.torch_save_sets import MAX_RANKS, ZERO_RANK
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

MAX_STATES: Final = 256
"""Files of model states whose steps are compared; of more, only the first is read."""
_MAX_OPTIMIZERS: Final = 8
"""Of optimizer states, each of which says the same, until one can be read."""
_MODEL_STATES: Final = re.compile(r".*mp_rank_\d+_model_states\.pt")
_OPTIM_STATES: Final = "_optim_states.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroFacts:
    """What DeepSpeed's files say about their save.

    Args:
        num_ranks: Ranks whose files must be there; 0 where the files do not say.
        findings: `mixed_saves`, where they disagree.
    """

    num_ranks: int = 0
    findings: tuple[Finding, ...] = ()


def read_zero_facts(store: Store, listing: Listing, names: Sequence[str]) -> ZeroFacts:
    """Read what one folder's files say of their save; nothing if they are not those of ZeRO.

    Args:
        store: Where they lie.
        listing: Of the folder.
        names: torch.save files in it.

    Raises:
        StoreError: The store did not deliver.
    """
    here = [name for name in names if name in listing.files]
    ranked = [name for name in here if ZERO_RANK.fullmatch(name)]
    states = [name for name in here if _MODEL_STATES.fullmatch(name)]
    if not ranked:
        return ZeroFacts()
    read = states if len(states) <= MAX_STATES else states[:1]
    values = {name: value for name in read if (value := _value(store, listing, name)) is not None}
    optimizers = islice((name for name in ranked if name.endswith(_OPTIM_STATES)), _MAX_OPTIMIZERS)
    partitions = next(
        (count for name in optimizers if (count := _partitions(_value(store, listing, name)))), None
    )
    worlds = [size for value in values.values() if (size := _count(value.get("dp_world_size")))]
    # MiCS keeps fewer partitions than it has ranks, and only the first group saves them.
    num_ranks = min([partitions, *worlds]) if partitions else 0
    return ZeroFacts(num_ranks=num_ranks, findings=tuple(_other_steps(values)))


def _value(store: Store, listing: Listing, name: str) -> Mapping[object, object] | None:
    pickled = read_leading_pickle(store, listing, name)
    return pickled.value if pickled is not None and isinstance(pickled.value, dict) else None


def _partitions(value: Mapping[object, object] | None) -> int | None:
    """Return `partition_count`: one number (ZeRO 3), or one for each group of parameters."""
    optimizer = value.get("optimizer_state_dict") if value is not None else None
    counts = optimizer.get("partition_count") if isinstance(optimizer, dict) else None
    numbers = counts if isinstance(counts, list) else [counts]
    return max((number for count in numbers if (number := _count(count))), default=None)


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= MAX_RANKS else None


def _other_steps(values: Mapping[str, Mapping[object, object]]) -> Iterator[Finding]:
    """Doubt files of model states that were saved at another step than the first."""
    steps = {
        name: step for name, value in values.items() if isinstance(step := value.get("global_steps"), int)
    }
    first = next(iter(steps), None)
    for name, step in steps.items():
        if first is not None and step != steps[first]:
            yield Finding(
                code=FindingCode.MIXED_SAVES,
                check=CheckName.EXISTENCE,
                severity=Severity.UNKNOWN,
                message=f"{name} was saved at another step than {first}: these are files of two saves",
                file=name,
                expected=f"global_steps {steps[first]}"[:80],
                observed=f"global_steps {step}"[:80],
            )
