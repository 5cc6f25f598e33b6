"""Random lives of a run against a plain model: what is live is what led to where it is."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ckptguard.model.verdict import Verdict
from tests.databases import fresh_database
from tests.service_rows import add_verdict
from tests.started_run import LOADING, PROGRESSED, RESUMED, Training

MOVES = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "resume", "fail", "fail", "fail apart", "progress", "fresh"]),
        st.integers(0, 30),
        st.sampled_from(["a", "b", "a b", ""]),
    ),
    max_size=25,
)


class Model:
    """A run as a trainer would tell of it: each save knows the save before it."""

    def __init__(self) -> None:
        self.before: dict[int, int | None] = {}
        self.last: int | None = None
        self.start: int | None = None
        self.has_saved = True
        self.failures: dict[int, list[set[str]]] = {}
        self.suspects: set[int] = set()
        self.is_failing = False

    def save(self, checkpoint_id: int) -> None:
        """Go on from the last save, or from where the job started: wherever the service thought it was."""
        self.before[checkpoint_id] = self.last if self.has_saved else self.start
        self.last = checkpoint_id
        self.has_saved = True

    def begin(self, checkpoint_id: int | None) -> None:
        """Start a job."""
        self.last = self.start = checkpoint_id
        self.has_saved = False

    def way(self) -> list[int]:
        """Return the saves that led to the last."""
        way, at = [], self.last
        while at is not None:
            way.append(at)
            at = self.before[at]
        return sorted(way)

    def fail(self, checkpoint_id: int, nodes: set[str], *, order: list[int]) -> None:
        """Judge one failure by the words of the design."""
        self.failures.setdefault(checkpoint_id, []).append(nodes)
        told = self.failures[checkpoint_id]
        known = [names for names in told if names]
        is_apart = not known or any(not one & other for one in known for other in known)
        if self.is_failing or checkpoint_id in self.suspects or len(told) < 3 or not is_apart:
            return
        place = order.index(checkpoint_id)
        newer = {one for one in self.suspects & set(self.failures) if order.index(one) > place}
        way = self.way()
        older = [one for one in way if order.index(one) < place and one not in self.suspects]
        if not newer and older:
            self.suspects.add(checkpoint_id)
            return
        self.is_failing = True
        self.suspects -= newer
        if newer:
            self.last = max(newer, key=order.index)

    def settle(self) -> None:
        """Count nothing that was told any more."""
        self.failures.clear()


@settings(max_examples=25, deadline=None)
@given(MOVES)
@example([("save", 0, ""), ("save", 0, ""), ("fail apart", 1, ""), ("fail apart", 0, ""), ("save", 0, "")])
def test_live_and_suspect_are_as_a_plain_model_says(moves: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder, fresh_database("memory", folder=Path(folder)) as database:
        training, model = Training(database=database), Model()
        saves: list[int] = []
        for move, pick, nodes in moves:
            _play(training, model, saves, move=move, pick=pick, nodes=nodes)
            assert training.live() == model.way(), move
            assert set(training.suspects()) == model.suspects, move
            assert (training.run.restarts_failing_at is not None) == model.is_failing, move


def _play(training: Training, model: Model, saves: list[int], *, move: str, pick: int, nodes: str) -> None:
    if move == "save":
        last = None if model.last is None else training.row(model.last).step
        saves.append(_save(training, 0 if last is None else last + 1, folder=str(len(saves))))
        model.save(saves[-1])
    elif move == "fresh" or not saves:
        training.tell(RESUMED, is_fresh_despite=True, repeated_run="run-7")
        model.begin(None)
        model.settle()
    else:
        _start(training, model, saves[pick % len(saves)], move=move, nodes=nodes)


def _save(training: Training, step: int, *, folder: str) -> int:
    checkpoint_id = training.register(step, folder, is_validated=False)
    with training.database.write() as tx:
        add_verdict(tx, checkpoint_id, Verdict.VALID)
    return checkpoint_id


def _start(training: Training, model: Model, checkpoint_id: int, *, move: str, nodes: str) -> None:
    if move == "fail apart":
        for node in "abc":
            _start(training, model, checkpoint_id, move="fail", nodes=node)
        return
    training.tell(RESUMED, checkpoint_id)
    model.begin(checkpoint_id)
    if move == "fail":
        training.tell(LOADING, checkpoint_id, nodes=tuple(nodes.split()))
        order = sorted(model.before, key=lambda one: (training.row(one).branch, training.row(one).step, one))
        model.fail(checkpoint_id, set(nodes.split()), order=order)
    elif move == "progress":
        training.tell(PROGRESSED, checkpoint_id)
        model.settle()
        model.is_failing = False
        model.suspects.discard(checkpoint_id)
