"""The hosts of a job, as Slurm writes them."""

import socket
from itertools import islice

import pytest

from ckptguard.operations.restart_hosts import MAX_HOSTS, expand_nodes, hosts_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,gpu-2.example", ["n1", "gpu-2.example"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],b", ["n08", "n09", "n10", "n12", "b"]),
        ("a[1,3]-ib", ["a1-ib", "a3-ib"]),
        ("a[1-2],b[1-2]", ["a1", "a2", "b1", "b2"]),
        ("r[1-2]n[1-4]", ["r[1-2]n[1-4]"]),
        ("a[3-1]", []),
        ("a[x-y]", ["a[x-y]"]),
        ("a,,b", ["a,,b"]),
    ],
)
def test_a_node_list_is_its_names(text: str, names: list[str]) -> None:
    assert list(expand_nodes(text)) == names


def test_a_list_without_end_is_bounded() -> None:
    assert len(hosts_of({"SLURM_JOB_NODELIST": "n[0-999999999]"})) == MAX_HOSTS
    assert list(islice(expand_nodes("n[000000000-999999999]"), 1)) == ["n000000000"]


def test_without_slurm_it_is_this_host() -> None:
    assert hosts_of({}) == (socket.gethostname(),)
