"""What a pass registers, what it leaves, and what it opens for that."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from ckptguard.errors import (
    AccessDeniedError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    LocationRefusedError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from ckptguard.model.saving_marker import marker_name
from ckptguard.operations.adopt.adoption import Adoption
from ckptguard.operations.adopt.loop import MAX_ROUNDS, adopt_once, watch
from ckptguard.operations.adopt.news import NewsKind as Kind
from ckptguard.storage.protocol import ObjectStat, RangeReader
from tests.unit.operations.adopt.adopting import CORPUS, LONG_AGO, NOW, CountingStore, Stage, put_save

SEEDED = Random(1)  # noqa: S311 - spreads intervals


class Ended(Exception):  # noqa: N818 - not an error
    """The test has seen enough of a watcher."""


def watched(stage: Stage, adoption: Adoption, *between: object, every_s: float = 10.0) -> None:
    """Watch, and do one thing after each pass: a callable, or nothing."""
    steps = iter(between)

    def after_pass(_: float) -> None:
        step = next(steps, Ended)
        if step is Ended:
            raise Ended
        if callable(step):
            step()

    stage.clock._on_sleep = after_pass
    with pytest.raises(Ended):
        watch(adoption, stage.clock, stage.news.append, every_s=every_s, jitter=SEEDED)


def test_steps_are_told_in_numeric_order_and_the_newest_by_number_are_validated() -> None:
    stage = Stage()
    for step in (200, 1000, 99, 30):
        put_save(stage.store, f"ckpts/checkpoint-{step}")
    adopt_once(stage.adoption(newest=2), stage.clock, stage.news.append)
    assert stage.service.steps() == [30, 99, 200, 1000]
    assert stage.service.steps(validated=True) == [200, 1000]


@pytest.mark.parametrize(("newest", "validated"), [(0, []), (None, [1, 2, 3]), (1, [3])])
def test_validate_counts_the_newest(newest: int | None, validated: list[int]) -> None:
    stage = Stage()
    for step in (1, 2, 3):
        put_save(stage.store, f"ckpts/step-{step}")
    adopt_once(stage.adoption(newest=newest), stage.clock, stage.news.append)
    assert stage.service.steps(validated=True) == validated


def test_only_listing_and_metadata_are_asked_for() -> None:
    stage = Stage()
    for step in range(1, 31):
        put_save(stage.store, f"ckpts/step-{step}")
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.counting.walks == 1
    assert sorted(stage.counting.opened) == sorted(f"ckpts/step-{step}/.metadata" for step in range(1, 31))
    assert stage.counting.stats == 0
    assert len(stage.service.told) == 30


def test_the_same_again_is_known_and_nothing_new() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.kinds() == [Kind.REGISTERED, Kind.KNOWN]
    assert stage.service.told[0] == stage.service.told[1]


def test_an_old_checkpoint_is_settled_at_once_and_a_young_one_is_waited_for() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    adopt_once(stage.adoption(settle_s=30), stage.clock, stage.news.append)
    assert stage.clock.sleeps_s == []
    put_save(stage.store, "ckpts/step-2", at=NOW - timedelta(seconds=11))
    adopt_once(stage.adoption(settle_s=30), stage.clock, stage.news.append)
    assert stage.clock.sleeps_s == [pytest.approx(20, abs=0.1)]
    assert stage.service.steps() == [1, 1, 2]


def test_a_save_that_goes_on_is_not_registered() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1", at=NOW)

    def write_on(_: float) -> None:
        stage.store.put("ckpts/step-1/__1_0.distcp", b"more", modified_at=stage.clock.now())

    stage.clock._on_sleep = write_on
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.service.told == []
    assert stage.kinds() == [Kind.WAITING]
    assert len(stage.clock.sleeps_s) == MAX_ROUNDS - 1


def test_files_of_the_future_are_settled_by_what_is_seen() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1", at=NOW + timedelta(days=365))
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.clock.sleeps_s == [pytest.approx(30, abs=0.1)]
    assert stage.service.steps() == [1]


def test_what_is_not_committed_is_never_registered_and_said() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    put_save(stage.store, "ckpts/step-2", without=".metadata")
    put_save(stage.store, "ckpts/step-3.tmp")
    stage.store.put("ckpts/step-4/readme.txt", b"x", modified_at=NOW - timedelta(days=1))
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.service.steps() == [1]
    reasons = {news.path: news.reason for news in stage.of(Kind.SKIPPED)}
    assert reasons == {
        "step-2": "no .metadata",
        "step-3.tmp": "named like a save in progress",
        "step-4": "nothing of a known format in it",
    }
    assert stage.clock.sleeps_s == []


def test_a_copy_that_arrives_metadata_first_with_old_times_is_waited_for() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1", without="__1_0.distcp")

    def arrive(_: float) -> None:
        put_save(stage.store, "ckpts/step-1")

    stage.clock._on_sleep = arrive
    adoption = stage.adoption()
    passed = adoption.run_pass()
    assert passed.wait_s == pytest.approx(30, abs=0.1)
    assert "missing or short: 1" in str(passed.standing[0].reason)
    adopt_once(adoption, stage.clock, stage.news.append)
    assert stage.kinds() == [Kind.REGISTERED]


def test_an_old_checkpoint_with_a_lost_shard_is_registered_for_a_verdict_after_one_wait() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1", without="__1_0.distcp")
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.clock.sleeps_s == [pytest.approx(30, abs=0.1)]
    assert stage.service.steps() == [1]


def test_runs_come_from_the_layout_each_with_its_own_newest() -> None:
    stage = Stage()
    for run in ("a", "b"):
        for step in (1, 2):
            put_save(stage.store, f"ckpts/{run}/x/step-{step}")
    adopt_once(stage.adoption(layout="{run}/*/step-{step}", newest=1), stage.clock, stage.news.append)
    told = [(told["run"], told["step"], told["validate"]) for told in stage.service.told]
    assert told == [("a", 1, False), ("a", 2, True), ("b", 1, False), ("b", 2, True)]


def test_several_folders_of_steps_without_a_layout_are_a_question() -> None:
    stage = Stage()
    for run in ("a", "b"):
        put_save(stage.store, f"ckpts/{run}/step-1")
    with pytest.raises(ConfigError, match=r"a, b.*--layout"):
        stage.adoption().run_pass()
    assert stage.service.told == []


def test_a_dry_run_opens_nothing() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    adopt_once(stage.adoption(is_dry=True), stage.clock, stage.news.append)
    assert stage.kinds() == [Kind.WOULD_REGISTER]
    assert stage.counting.opened == []


@pytest.mark.parametrize(
    ("files", "fault", "told"),
    [
        ({"latest": b"step-100"}, "stale", "step 200 is newer"),
        ({"latest": b"step-900"}, "dangling", "not there"),
        ({"latest_checkpointed_iteration.txt": b"150"}, "dangling", "not there"),
        ({"latest_checkpointed_iteration.txt": b"\xff\xfe"}, "unparsable", "does not hold"),
        ({"latest": b""}, "unparsable", "is empty"),
        ({"latest": b"the newest one"}, "unparsable", "not there"),
        ({"latest": b"step-300", "step-300/__0_0.distcp": b"x"}, "uncommitted", "not committed"),
        ({"latest": b"step-200"}, None, None),
        ({"latest_checkpointed_iteration.txt": b"200\n"}, None, None),
    ],
)
def test_pointer_faults_are_told_and_change_nothing(
    files: dict[str, bytes], fault: str | None, told: str | None
) -> None:
    stage = Stage()
    for step in (100, 200):
        put_save(stage.store, f"ckpts/step-{step}")
    for path, content in files.items():
        stage.store.put(f"ckpts/{path}", content, modified_at=NOW - timedelta(days=1))
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    pointers = stage.of(Kind.POINTER)
    assert [news.fault for news in pointers] == ([fault] if fault else [])
    assert told is None or told in str(pointers[0].reason)
    assert stage.service.steps() == [100, 200]


def test_a_pointer_fault_of_a_moment_is_not_told_while_watching() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    stage.store.put("ckpts/latest", b"step-1")

    def save() -> None:
        put_save(stage.store, "ckpts/step-2")

    def move() -> None:
        stage.store.put("ckpts/latest", b"step-2")

    watched(stage, stage.adoption(), save, move, None)
    assert stage.of(Kind.POINTER) == []
    stage.store.put("ckpts/latest", b"step-1")
    watched(stage, stage.adoption(), None, None)
    assert [news.fault for news in stage.of(Kind.POINTER)] == ["stale"]


def test_what_comes_while_watching_is_validated_beyond_the_newest_few() -> None:
    stage = Stage()
    for step in (1, 2, 3):
        put_save(stage.store, f"ckpts/step-{step}")

    def save() -> None:
        for step in (4, 5, 6):
            put_save(stage.store, f"ckpts/step-{step}")

    watched(stage, stage.adoption(newest=1), save, None)
    assert stage.service.steps(validated=True) == [3, 4, 5, 6]


def test_a_mount_that_comes_late_is_not_taken_for_news() -> None:
    stage = Stage()

    def mount() -> None:
        for step in (1, 2, 3):
            put_save(stage.store, f"ckpts/step-{step}")

    watched(stage, stage.adoption(newest=1), mount, None)
    assert stage.service.steps(validated=True) == [3]


def test_an_outage_in_the_first_pass_does_not_make_the_rest_news() -> None:
    stage = Stage()
    for step in (1, 2, 3, 4):
        put_save(stage.store, f"ckpts/step-{step}")
    stage.service.errors = [None, ServiceUnavailableError("away"), ServiceUnavailableError("away")]
    watched(stage, stage.adoption(newest=1), None, None)
    assert stage.service.steps() == [1, 2, 3, 4]
    assert stage.service.steps(validated=True) == [4]
    assert stage.kinds() == [Kind.REGISTERED, Kind.TROUBLE, *[Kind.REGISTERED] * 3, Kind.RECOVERED]


def test_an_outage_of_the_store_is_told_once_and_intervals_grow() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    watched(
        stage,
        stage.adoption(),
        lambda: stage.store.deny("ckpts"),
        None,
        None,
        lambda: stage.store.allow("ckpts"),
    )
    assert stage.kinds() == [Kind.REGISTERED, Kind.TROUBLE, Kind.RECOVERED]
    grown = stage.clock.sleeps_s[1:4]
    assert grown[0] > 15
    assert grown[1] > 30
    assert grown[2] > 60


def test_a_refusal_at_the_very_first_pass_ends_a_watcher() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    stage.service.errors = [UnauthorizedError("no")]
    with pytest.raises(UnauthorizedError):
        watch(stage.adoption(), stage.clock, stage.news.append, every_s=1, jitter=SEEDED)
    stage.service.errors = [LocationRefusedError("serve --store")]
    with pytest.raises(LocationRefusedError):
        adopt_once(stage.adoption(), stage.clock, stage.news.append)


def test_a_resave_into_the_same_folder_is_registered_anew() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    other = "dcp_torch2_13_0_uneven_ws4"
    watched(stage, stage.adoption(), lambda: put_save(stage.store, "ckpts/step-1", save=other), None, None)
    assert len(stage.service.told) == 2
    assert stage.service.told[0]["save_id"] != stage.service.told[1]["save_id"]


def test_the_marker_of_a_save_that_died_is_no_file_of_the_checkpoint() -> None:
    stages = Stage(), Stage()
    for stage in stages:
        put_save(stage.store, "ckpts/step-1")
    stages[1].store.put(f"ckpts/step-1/{marker_name('another', '0123abcd')}", b"", modified_at=LONG_AGO)
    for stage in stages:
        stage.adoption().run_pass()
    assert stages[0].service.told == stages[1].service.told


def test_a_sidecar_that_comes_later_is_no_new_save() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")

    def add() -> None:
        stage.store.put("ckpts/step-1/notes.txt", b"x", modified_at=LONG_AGO)

    watched(stage, stage.adoption(), add, None, None)
    assert len(stage.service.told) == 1


def test_a_conflict_about_sidecars_is_the_same_save() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    stage.service.errors = [ConflictError("num_files")]
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert "num_files" not in stage.service.told[0]
    assert stage.kinds() == [Kind.REGISTERED]
    assert "other files" in stage.news[0].notes[0]


def test_a_refused_checkpoint_holds_up_no_other_and_is_told_once() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")
    stage.service.errors = [InvalidRequestError("no such run name")]

    def refuse_again() -> None:
        stage.service.errors = [InvalidRequestError("no such run name")]

    watched(stage, stage.adoption(), None, refuse_again, None, every_s=180)
    assert stage.service.errors == []
    assert stage.kinds() == [Kind.REFUSED, Kind.REGISTERED]


def test_metadata_that_may_not_be_read_is_told_and_holds_up_no_other() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")

    class Denying(CountingStore):
        def open(self, path: str) -> RangeReader:
            if path.startswith("ckpts/step-1/"):
                msg = "denied"
                raise AccessDeniedError(msg, key=path)
            return super().open(path)

    stage.counting = Denying(stage.store)
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.kinds() == [Kind.UNREADABLE, Kind.REGISTERED]


def test_what_retention_takes_is_reported_after_the_settle_time() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")
    folder = [path for path in stage.store._objects if path.startswith("ckpts/step-1/")]

    def take() -> None:
        for path in folder:
            stage.store.remove(path)

    watched(stage, stage.adoption(settle_s=15), take, None, None, None, None, every_s=10)
    assert stage.service.deleted == ["1"]
    (news,) = stage.of(Kind.DELETED)
    assert (news.step, news.path, news.checkpoint_id) == (1, "step-1", 1)


def test_a_checkpoint_that_is_half_deleted_is_not_reported() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")
    watched(
        stage,
        stage.adoption(settle_s=0),
        lambda: stage.store.remove("ckpts/step-1/.metadata"),
        None,
        None,
    )
    assert stage.service.deleted == []
    assert [news.reason for news in stage.of(Kind.SKIPPED)] == ["no .metadata"]


def test_a_run_that_vanishes_whole_is_never_reported_as_deleted() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")
    watched(stage, stage.adoption(settle_s=0), stage.store._objects.clear, None, None, None)
    assert stage.service.deleted == []
    (news,) = stage.of(Kind.GONE)
    assert (news.run, news.step) == ("r", None)


def test_steps_that_another_folder_of_steps_hides_are_not_deleted() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/inner/step-1")
    watched(
        stage, stage.adoption(settle_s=0), lambda: put_save(stage.store, "ckpts/step-9"), None, None, None
    )
    assert stage.service.deleted == []


def test_a_token_that_may_not_report_leaves_it() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")
    folder = [path for path in stage.store._objects if path.startswith("ckpts/step-1/")]

    def take() -> None:
        for path in folder:
            stage.store.remove(path)
        stage.service.errors = [ForbiddenError("needs admin")]

    watched(stage, stage.adoption(settle_s=0), take, None, None, None)
    assert [news.reason for news in stage.of(Kind.GONE)] == ["needs admin"]


def test_a_root_that_is_a_checkpoint_is_registered_as_one() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-7")
    adopt_once(stage.adoption(folder="ckpts/step-7"), stage.clock, stage.news.append)
    assert [(told["step"], told["location"]) for told in stage.service.told] == [
        (7, {"url": "memory:/ckpts/step-7"})
    ]


def test_a_root_that_is_called_like_a_step_and_holds_steps_is_none() -> None:
    stage = Stage()
    put_save(stage.store, "ckpt1/step-7")
    stage.store.put("ckpt1/latest", b"step-7")
    adopt_once(stage.adoption(folder="ckpt1"), stage.clock, stage.news.append)
    assert stage.service.steps() == [7]


def test_a_step_of_hugging_face_with_a_step_of_deepspeed_in_it_is_one() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/checkpoint-800/global_step799", save="deepspeed_zero1_ws2")
    for name in ("latest", "trainer_state.json"):
        stage.store.put(f"ckpts/checkpoint-800/{name}", b"global_step799")
    for folder in ("ckpts", "ckpts/checkpoint-800"):
        adopt_once(stage.adoption(folder=folder), stage.clock, stage.news.append)
    assert stage.service.steps() == [800, 800]
    assert stage.of(Kind.POINTER) == []


def test_a_manifest_that_comes_later_is_sent() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")

    def write() -> None:
        stage.store.put("ckpts/step-1/ckptguard.manifest.json", b"{", modified_at=LONG_AGO)

    watched(stage, stage.adoption(), write, None)
    assert len(stage.service.told) == 2
    assert "without its manifest" in stage.of(Kind.KNOWN)[0].notes[0]


def test_a_listing_that_lacks_a_checkpoint_once_deletes_nothing() -> None:
    stage = Stage()
    for step in (1, 2):
        put_save(stage.store, f"ckpts/step-{step}")

    def hide() -> None:
        for path in [path for path in stage.store._objects if path.startswith("ckpts/step-1/")]:
            stage.store.remove(path)

    watched(
        stage, stage.adoption(settle_s=15), hide, lambda: put_save(stage.store, "ckpts/step-1"), *[None] * 4
    )
    assert stage.service.deleted == []


def test_a_save_whose_shards_still_come_is_waited_for() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1", at=NOW, without=".metadata")
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.kinds() == [Kind.SKIPPED]
    assert len(stage.clock.sleeps_s) == 1
    stage.news.clear()
    put_save(stage.store, "ckpts/step-1", at=stage.clock.now(), without=".metadata")
    watched(stage, stage.adoption(), None)
    assert stage.kinds() == [Kind.WAITING]


def test_a_store_that_keeps_no_times_is_settled_by_what_is_seen() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")

    class Timeless(CountingStore):
        def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
            for stat in super().walk(prefix):
                yield replace(stat, modified_at=None) if stat.path.endswith("__0_0.distcp") else stat

    stage.counting = Timeless(stage.store)
    adopt_once(stage.adoption(), stage.clock, stage.news.append)
    assert stage.clock.sleeps_s == [pytest.approx(30, abs=0.1)]
    assert stage.service.steps() == [1]


def test_validate_0_holds_for_what_comes_later_too() -> None:
    stage = Stage()
    put_save(stage.store, "ckpts/step-1")
    watched(stage, stage.adoption(newest=0), lambda: put_save(stage.store, "ckpts/step-2"), None)
    assert stage.service.steps() == [1, 2]
    assert stage.service.steps(validated=True) == []


def test_a_numbered_set_with_a_gap_is_waited_for() -> None:
    stage = Stage()
    save = "hf_hub_sharded_safetensors"
    (shard,) = sorted((CORPUS / save).glob("*-00001-of-*.safetensors"))
    put_save(stage.store, "ckpts/step-1", save=save, without=shard.name)
    passed = stage.adoption().run_pass()
    assert stage.service.told == []
    assert "missing or short: 1" in str(passed.standing[0].reason)
    put_save(stage.store, "ckpts/step-1", save=save)
    stage.adoption().run_pass()
    assert stage.service.steps() == [1]
    assert stage.counting.opened == []
