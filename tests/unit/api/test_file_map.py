"""What a map says of each file."""

import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptguard_api.domain.file_map import Fault, Faults, FileState, cells_at, map_files, rank_of
from ckptguard_api.domain.storable_text import storable

ERROR = Fault(severity="error", code="crc_mismatch", message="wrong bytes")
DOUBT = Fault(severity="unknown", code="unstable_read", message="two reads differ")
WARNING = Fault(severity="warning", code="stale_shard", message="left over")
GONE = Fault(severity="error", code="missing_shard", message="not there")

_FAULTS = st.sampled_from([ERROR, DOUBT, WARNING])


def evidence(*paths: str, unread: frozenset[str] = frozenset()) -> bytes:
    files = [
        {"path": path, "length_bytes": 7, "checksum": None if path in unread else "xxh3-128:" + "0" * 32}
        for path in paths
    ]
    return zstandard.ZstdCompressor().compress(json.dumps(files, separators=(",", ":")).encode())


def test_each_file_has_its_answer_and_missing_ones_come_last() -> None:
    faults = Faults(by_path={"b": ERROR, "c": DOUBT, "d": WARNING, "z": GONE, "y": GONE})
    found = map_files(evidence("a", "b", "c", "d", "e", unread=frozenset("e")), faults)
    assert found.states == "rfdnlmm"
    assert found.missing == ("y", "z")
    assert list(found.counts.items())[:2] == [(FileState.MISSING, 2), (FileState.FAULTY, 1)]


def test_a_file_is_never_called_good_where_more_was_found_than_is_told() -> None:
    found = map_files(evidence("a", "b"), Faults(by_path={"a": ERROR}, is_cut=True))
    assert found.states == "fu"


def test_without_evidence_only_what_is_missing_is_shown() -> None:
    assert map_files(None, Faults(by_path={"z": GONE})).states == "m"


@pytest.mark.parametrize("hostile", ["a\0b", "x\\y", 'quo"te', "},{", '},{"path":"', "é\u202e", "\ud800"])
def test_a_hostile_name_is_found_again(hostile: str) -> None:
    faults = Faults(by_path={storable(hostile): ERROR})
    assert map_files(evidence("a", hostile, "z"), faults).states == "rfr"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=12), unique_by=storable, min_size=1, max_size=40),
    st.data(),
)
def test_a_map_equals_what_is_said_of_each_file_alone(paths: list[str], data: st.DataObject) -> None:
    by_path = {storable(path): data.draw(_FAULTS) for path in data.draw(st.sets(st.sampled_from(paths)))}
    unread = frozenset(data.draw(st.sets(st.sampled_from(paths))))
    faults = Faults(by_path=by_path)
    body = evidence(*paths, unread=unread)
    found = map_files(body, faults)
    assert found.states == "".join(faults.state_of(path, is_read=path not in unread).value for path in paths)
    cells = list(cells_at(body, faults, range(len(paths)), num_files=len(paths), missing=found.missing))
    assert [cell.path for cell in cells] == paths
    assert "".join(cell.state.value for cell in cells) == found.states


def test_cells_are_given_at_the_places_asked_for() -> None:
    paths = [f"__{number:06}_0.distcp" for number in range(30_000)]
    faults = Faults(by_path={"gone": GONE})
    places = [0, 1, 17_000, 29_999, 30_000]
    cells = list(cells_at(evidence(*paths), faults, places, num_files=30_000, missing=("gone",)))
    assert [cell.number for cell in cells] == places
    assert [cell.path for cell in cells] == [*(paths[place] for place in places[:-1]), "gone"]
    assert cells[-1].length_bytes is None


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("__17_0.distcp", 17),
        ("optimizer_0/__3_2.distcp", 3),
        ("__5.metadata", 5),
        (".metadata", None),
        ("model-00001-of-00004.safetensors", None),
        ("x__3_2.distcp", None),
        ("__9999999999999_0.distcp", None),
    ],
)
def test_a_rank_is_told_only_where_the_name_says_it(path: str, rank: int | None) -> None:
    assert rank_of(path) == rank
