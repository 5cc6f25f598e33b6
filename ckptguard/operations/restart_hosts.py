"""The hosts of a job: restarts that fail on disjoint sets of them speak against a checkpoint."""

import re
import socket
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

MAX_HOSTS: Final = 20_000
"""As many as the service takes."""
_ITEM: Final = r"[^\[\],]+(?:\[[\d,-]+\][^\[\],]*)?"
_LIST: Final = re.compile(rf"{_ITEM}(?:,{_ITEM})*", re.ASCII)
_GROUP: Final = re.compile(r"([^\[\],]+)(?:\[([\d,-]+)\]([^\[\],]*))?", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def hosts_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of this job: Slurm's list, else this host alone."""
    nodes = environment.get("SLURM_JOB_NODELIST", "")
    return tuple(islice(expand_nodes(nodes), MAX_HOSTS)) or (socket.gethostname(),)


def expand_nodes(text: str) -> Iterator[str]:
    """Yield the names of a Slurm node list: `a[01-03,7],b` is a01, a02, a03, a7, b.

    What is no such list, names with several brackets among it (`rack[1-2]n[1-4]`), stays one name: two
    equal jobs then still have equal ones.
    """
    if not _LIST.fullmatch(text):
        yield from [text] if text else []
        return
    for before, ranges, after in _GROUP.findall(text):
        if ranges:
            yield from (f"{before}{number}{after}" for number in _numbers(ranges))
        else:
            yield before


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            continue
        first, last = match[1], match[2] or match[1]
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
