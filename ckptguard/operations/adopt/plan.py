"""Which checkpoints are registered now, which of them are to be validated, and which have to wait."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckptguard.operations.adopt.found import Found
from ckptguard.operations.adopt.settling import Settling


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do about what was seen. Each in the order of runs, then of steps as numbers.

    Args:
        to_register: Committed, at rest, and not told yet in this form.
        waiting: Somebody wrote there lately; with why it is not registered now.
        skipped: Nobody did, and names say that it is not committed; with why.
    """

    to_register: tuple[Found, ...]
    waiting: tuple[tuple[Found, str], ...]
    skipped: tuple[tuple[Found, str], ...]


def plan(found: Sequence[Found], settling: Settling, told: Mapping[str, str]) -> Plan:
    """Sort what was seen.

    Args:
        found: All of it.
        settling: Has looked at it.
        told: Folder to the `save_version` under which it was dealt with.
    """
    to_register: list[Found] = []
    waiting: list[tuple[Found, str]] = []
    skipped: list[tuple[Found, str]] = []
    for each in found:
        if each.doubt is not None:
            kept = skipped if settling.is_settled(each) else waiting
            kept.append((each, each.doubt))
        elif told.get(each.folder) == each.save_version:
            continue
        elif settling.is_settled(each):
            to_register.append(each)
        else:
            waiting.append((each, "its files changed lately"))
    return Plan(to_register=tuple(to_register), waiting=tuple(waiting), skipped=tuple(skipped))


def newest_of_each_run(found: Iterable[Found], count: int | None) -> frozenset[str]:
    """Return the folders of the newest committed steps of each run, numbers compared as numbers.

    Args:
        found: Steps of any runs.
        count: Of each run; None: all.
    """
    runs: defaultdict[str, list[Found]] = defaultdict(list)
    for each in found:
        if each.doubt is None:
            runs[each.run].append(each)
    chosen: set[str] = set()
    for steps in runs.values():
        ranked = sorted(steps, key=lambda each: (each.step, each.folder), reverse=True)
        chosen |= {each.folder for each in ranked[:count]}
    return frozenset(chosen)
