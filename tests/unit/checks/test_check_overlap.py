"""The rule about two saves in one folder at once."""

import pytest

from ckptguard.checks.overlap import check_overlap
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import CheckName, FindingCode, Severity
from ckptguard.model.layout import Layout, MetadataFile
from ckptguard.model.saving_marker import is_marker_of, is_saving_marker, marker_name
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

CHECKSUM = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
OWN, OTHER = marker_name("mine", "00000001"), marker_name("theirs", "00000002")


def _layout(save_id: str | None = "mine", metadata: str = ".metadata") -> Layout:
    files = (MetadataFile(path=metadata, length_bytes=9, checksum=CHECKSUM),)
    return Layout(format="dcp", metadata_files=files, save_id=save_id)


def _listing(*paths: str) -> Listing:
    return Listing(root="", files={path: ObjectStat(path=path, length_bytes=0) for path in paths})


def test_two_saves_of_which_the_committed_one_has_not_finished_leave_it_in_doubt() -> None:
    (finding,) = check_overlap([_layout()], _listing(".metadata", OWN, OTHER))
    assert (finding.code, finding.severity) == (FindingCode.UNFINISHED_MARKER, Severity.UNKNOWN)
    assert (finding.check, finding.is_retryable) == (CheckName.PROVENANCE, True)
    assert finding.observed == ", ".join(sorted([OWN, OTHER]))


def test_so_do_two_saves_that_somebody_gave_the_same_id() -> None:
    again = marker_name("mine", "00000003")
    assert len(check_overlap([_layout()], _listing(".metadata", OWN, again))) == 1


@pytest.mark.parametrize(
    "markers",
    [
        pytest.param((), id="finished, or stock"),
        pytest.param((OWN,), id="killed before its manifest, alone"),
        pytest.param((OTHER,), id="stock saved where a guarded save had died"),
        pytest.param((OTHER, marker_name("a third", "00000003")), id="where several had died"),
        pytest.param((OWN, f"other/{OTHER}"), id="another part"),
        pytest.param((OWN, "ckptguard.saving.txt"), id="no marker"),
    ],
)
def test_anything_else_says_nothing(markers: tuple[str, ...]) -> None:
    assert check_overlap([_layout()], _listing(".metadata", *markers)) == ()


def test_each_part_is_judged_by_its_own_folder() -> None:
    layouts = [_layout("mine", "model/.metadata"), _layout("mine", "optim/.metadata")]
    (finding,) = check_overlap(layouts, _listing(f"optim/{OWN}", f"optim/{OTHER}", f"model/{OWN}"))
    assert finding.file == "optim/.metadata"


def test_metadata_without_a_save_id_says_nothing() -> None:
    assert check_overlap([_layout(None)], _listing(".metadata", OWN, OTHER)) == ()


@pytest.mark.parametrize("save_id", ["", "a/../b", "ü\ud800", "x" * 5000])
def test_any_save_id_makes_a_plain_name(save_id: str) -> None:
    name = marker_name(save_id, "0123abcd")
    assert name.isascii()
    assert "/" not in name
    assert is_saving_marker(f"model/{name}")
    assert is_marker_of(f"model/{name}", save_id)
    assert not is_marker_of(f"model/{name}", f"{save_id}.")
