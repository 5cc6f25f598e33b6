"""Maps are kept within bounds, the longest unused go first."""

from ckptguard_api.domain.file_map import FileMap
from ckptguard_api.domain.kept_maps import KeptMaps


def of(cells: int, *, missing: int = 0) -> FileMap:
    return FileMap(states="r" * cells, missing=tuple(f"gone-{number}" for number in range(missing)))


def test_what_was_used_last_stays() -> None:
    maps = KeptMaps(max_cells=10)
    for validation_id in (1, 2):
        maps.put(validation_id, of(5))
    assert maps.find(1) == of(5)
    maps.put(3, of(5))
    assert [maps.find(each) is not None for each in (1, 2, 3)] == [True, False, True]


def test_putting_one_again_counts_it_once() -> None:
    maps = KeptMaps(max_cells=10)
    maps.put(1, of(5))
    for _ in range(3):
        maps.put(2, of(5))
    assert maps.find(1) is not None


def test_one_that_is_larger_than_all_may_be_pushes_none_out() -> None:
    maps = KeptMaps(max_cells=10)
    maps.put(1, of(5))
    maps.put(2, of(11))
    maps.put(3, of(1, missing=1))
    assert [maps.find(each) is not None for each in (1, 2, 3)] == [True, False, False]
