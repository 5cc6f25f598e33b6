"""Live are the saves on the way to where a run is; the rest is rolled back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard_api.domain.branches import Place, is_on_the_way, lineage_of

Origin = tuple[int, int] | None


def test_a_lineage_leads_back_to_a_start_from_nothing() -> None:
    origins = {
        0: None,
        1: Place(branch=0, step=200),
        2: Place(branch=0, step=100),
        3: Place(branch=2, step=150),
    }
    assert lineage_of(Place(branch=3, step=170), origins) == {3: 170, 2: 150, 0: 100}
    assert lineage_of(Place(branch=1, step=300), origins) == {1: 300, 0: 200}
    assert lineage_of(Place(branch=7, step=5), origins) == {7: 5}


def test_a_branch_opened_from_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="branch 1 is opened from branch 1"):
        lineage_of(Place(branch=1, step=5), {1: Place(branch=1, step=3)})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=8), st.data())
def test_the_way_is_that_of_a_walk_from_save_to_save(
    forks: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The model keeps, for each save, the save before it, as a trainer would."""
    before: dict[tuple[int, int], Origin] = {}
    origins: dict[int, Place | None] = {0: None}
    last: Origin = None
    branch = 0
    for skip, count in [(0, 3), *forks]:
        if before:
            last = data.draw(st.sampled_from(sorted(before)), label=f"resume {skip}")
            branch += 1
            origins[branch] = Place(branch=last[0], step=last[1])
        for _ in range(count):
            save = (branch, (last[1] if last else 0) + 1)
            before[save] = last
            last = save
    wanted = data.draw(st.sampled_from(sorted(before)), label="place")
    way = set()
    at: Origin = wanted
    while at is not None:
        way.add(at)
        at = before[at]
    lineage = lineage_of(Place(branch=wanted[0], step=wanted[1]), origins)
    assert {save for save in before if is_on_the_way(Place(branch=save[0], step=save[1]), lineage)} == way
