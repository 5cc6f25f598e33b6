"""Which safetensors files belong together."""

import pytest

from ckptguard.formats.safetensors_index import ShardIndex
from ckptguard.formats.safetensors_sets import group_files, is_shard_name
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.layout import MetadataFile


def index(**weight_map: str) -> ShardIndex:
    checksum = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
    file = MetadataFile(path="model.safetensors.index.json", length_bytes=1, checksum=checksum)
    return ShardIndex(file=file, weight_map=weight_map, total_size=None)


@pytest.mark.parametrize("name", ["._model.safetensors", ".x.safetensors", "model.safetensors.tmp", "a.json"])
def test_litter_is_no_shard(name: str) -> None:
    assert not is_shard_name(name)


def test_numbers_without_an_index_demand_every_file_of_the_total() -> None:
    (file_set,) = group_files(["m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"], [])
    assert file_set.files == tuple(f"m-0000{number}-of-00003.safetensors" for number in (1, 2, 3))


def test_numbers_may_start_at_zero() -> None:
    (file_set,) = group_files(["m-00000-of-00002.safetensors"], [])
    assert file_set.files == ("m-00000-of-00002.safetensors", "m-00001-of-00002.safetensors")


def test_single_files_are_sets_of_their_own() -> None:
    sets = group_files(["model.safetensors", "model.fp16.safetensors"], [])
    assert [file_set.files for file_set in sets] == [("model.fp16.safetensors",), ("model.safetensors",)]


def test_an_index_makes_a_set_and_takes_leftovers_of_its_numbering_out() -> None:
    names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m-00003-of-00003.safetensors"]
    (file_set,) = group_files(names, [index(a=names[0], b=names[1])])
    assert file_set.files == tuple(names[:2])


def test_files_of_ranks_make_one_set_that_knows_its_highest_rank() -> None:
    names = [
        f"shard-0000{rank}-model-0000{number}-of-00003.safetensors" for rank in (1, 4) for number in (1, 3)
    ]
    (file_set,) = group_files(names, [])
    assert file_set.files == tuple(sorted(names))
    assert file_set.num_ranks == 4
    assert file_set.absent_numbers == (2,)


def test_a_total_beyond_six_digits_is_no_numbering() -> None:
    (file_set,) = group_files(["m-000000001-of-999999999.safetensors"], [])
    assert file_set.files == ("m-000000001-of-999999999.safetensors",)
