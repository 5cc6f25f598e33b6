"""The map of a torch zip covers every byte once, and knows a payload from a header."""

from itertools import pairwise
from pathlib import Path

import pytest

from ckptguard.testing.own_metadata import find_item, stored_items
from ckptguard.testing.saves import BASE, TORCH_SAVE
from ckptguard.testing.zip_map import Area, map_zip

pytestmark = pytest.mark.torch


def test_every_byte_of_every_item_is_in_one_region(saves_dir: Path) -> None:
    folder = saves_dir / BASE
    for item in stored_items(folder):
        data = (folder / item.file).read_bytes()[item.offset : item.offset + item.length_bytes]
        regions = map_zip(data)
        assert regions[0].start == 0
        assert regions[-1].end == len(data)
        assert all(one.end == other.start for one, other in pairwise(regions))


def test_the_payload_is_as_long_as_the_tensor(saves_dir: Path) -> None:
    item = find_item(saves_dir / BASE, "model.w", (16, 0))
    data = (saves_dir / BASE / item.file).read_bytes()[item.offset : item.offset + item.length_bytes]
    (payload,) = [region for region in map_zip(data) if region.area is Area.PAYLOAD]
    assert payload.end - payload.start == 16 * 32 * 4
    assert payload.start % 64 == 0
    assert payload.record == "data/0"


def test_a_torch_save_file_is_mapped_like_an_item(saves_dir: Path) -> None:
    regions = map_zip((saves_dir / TORCH_SAVE / "model.pt").read_bytes())
    assert {region.record for region in regions if region.area is Area.PAYLOAD} == {"data/0", "data/1"}
