"""The laws of leases and verdicts, asked of the tables themselves after every step of the simulation."""

from typing import TYPE_CHECKING, Any, Final

from tests.property.leasing_model import MAX_COUNTED, in_force

if TYPE_CHECKING:
    from tests.property.leasing_simulation import Simulation

FORBIDDEN: Final = {
    "a lease exactly while its validation runs": """
        SELECT v.id FROM validations v LEFT JOIN leases l ON l.validation_id = v.id
        WHERE (v.state = 'running') != (l.attempt_id IS NOT NULL)""",
    "an attempt is open exactly while its lease is there": """
        SELECT a.id FROM attempts a LEFT JOIN leases l ON l.attempt_id = a.id
        WHERE (a.ended_at IS NULL) != (l.attempt_id IS NOT NULL)
        OR (a.ended_at IS NULL) != (a.ending IS NULL)""",
    "the live lease has the highest fence of its validation": """
        SELECT l.attempt_id FROM leases l JOIN attempts a ON a.validation_id = l.validation_id
        WHERE a.id > l.attempt_id""",
    "later attempts have higher fences": """
        SELECT a.id FROM attempts a JOIN attempts b ON a.validation_id = b.validation_id
        WHERE a.number < b.number AND a.id > b.id""",
    "the lease's token is its attempt's": """
        SELECT l.attempt_id FROM leases l JOIN attempts a ON a.id = l.attempt_id
        WHERE a.token_hash != l.token_hash OR a.validation_id != l.validation_id""",
    "a checkpoint says what its open validation says": """
        SELECT c.id FROM checkpoints c
        LEFT JOIN validations v ON v.checkpoint_id = c.id AND v.state IN ('queued', 'running')
        WHERE COALESCE(c.validation_state, '') != COALESCE(v.state, '')""",
    "a verdict exactly for a finished validation": """
        SELECT v.id FROM validations v LEFT JOIN verdicts g ON g.validation_id = v.id
        WHERE (v.state = 'finished') != (g.validation_id IS NOT NULL)""",
    "all attempts are counted, and those that count": """
        SELECT v.id FROM validations v LEFT JOIN attempts a ON a.validation_id = v.id
        GROUP BY v.id HAVING v.attempts != COUNT(a.id)
        OR v.counted_attempts != COALESCE(SUM(a.is_counted), 0)""",
    "an attempt counts exactly where it failed without a new file": """
        SELECT id FROM attempts
        WHERE is_counted != (COALESCE(ending, '') IN ('expired', 'stalled', 'failed') AND new_files = 0)""",
    "file results only of open validations": """
        SELECT f.path FROM file_results f JOIN validations v ON v.id = f.validation_id
        WHERE v.state NOT IN ('queued', 'running')""",
    "one newest of a run": """
        SELECT run_id FROM validations WHERE state IN ('queued', 'running') AND tier = 1
        GROUP BY run_id HAVING COUNT(*) > 1""",
    "nothing open and newer than the newest": """
        SELECT n.id FROM validations n JOIN validations o ON o.run_id = n.run_id
        WHERE n.tier = 1 AND n.state IN ('queued', 'running') AND o.state IN ('queued', 'running')
        AND o.tier < 3 AND (o.branch, o.step, o.checkpoint_id) > (n.branch, n.step, n.checkpoint_id)""",
    "the newest open one is the newest, unless a VALID as new protects the run": """
        SELECT o.id FROM validations o WHERE o.state IN ('queued', 'running') AND o.tier = 2
        AND NOT EXISTS (SELECT 1 FROM validations n WHERE n.run_id = o.run_id AND n.tier < 3
            AND n.state IN ('queued', 'running')
            AND (n.branch, n.step, n.checkpoint_id) > (o.branch, o.step, o.checkpoint_id))
        AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.run_id = o.run_id AND c.verdict = 'VALID'
            AND (c.branch, c.step, c.id) >= (o.branch, o.step, o.checkpoint_id))""",
    "the verdict in force is one on record, as recorded": """
        SELECT c.id FROM checkpoints c LEFT JOIN verdicts g ON g.validation_id = c.verdict_validation_id
        WHERE c.verdict IS NOT NULL AND (g.verdict IS NULL OR g.verdict != c.verdict
        OR COALESCE(g.basis, '') != COALESCE(c.basis, '')
        OR COALESCE(g.assurance, '') != COALESCE(c.assurance, ''))""",
    "a rewritten checkpoint has nothing open": """
        SELECT id FROM checkpoints WHERE superseded_by = 'rewritten' AND validation_state IS NOT NULL""",
    "one finished event per verdict": """
        SELECT g.validation_id FROM verdicts g LEFT JOIN events e
        ON e.validation_id = g.validation_id AND e.kind = 'validation.finished'
        GROUP BY g.validation_id HAVING COUNT(e.id) != 1""",
    "one started event per attempt": """
        SELECT v.id FROM validations v LEFT JOIN events e
        ON e.validation_id = v.id AND e.kind = 'validation.started'
        GROUP BY v.id HAVING COUNT(e.id) != v.attempts""",
}
"""What holds, and a query that finds what breaks it."""


def require_laws(simulation: "Simulation") -> None:
    """Raise AssertionError with the law that is broken."""
    raw = simulation.raw
    for law, query in FORBIDDEN.items():
        broken = raw.execute(query).fetchall()
        assert not broken, f"broken: {law}: {broken}"
    _require_verdicts_unchanged(simulation, raw)
    _require_model(simulation, raw)


def _require_verdicts_unchanged(simulation: "Simulation", raw: Any) -> None:  # noqa: ANN401 - sqlite3's
    rows = {row[0]: row for row in raw.execute("SELECT * FROM verdicts").fetchall()}
    for validation_id, before in simulation.seen_verdicts.items():
        assert rows.get(validation_id) == before, f"the verdict of validation {validation_id} changed"
    simulation.seen_verdicts = rows


def _require_model(simulation: "Simulation", raw: Any) -> None:  # noqa: ANN401 - sqlite3's
    rows = raw.execute("SELECT id, state, counted_attempts, attempts, depth FROM validations").fetchall()
    states = {row[0]: tuple(row[1:]) for row in rows}
    expected = {
        one.id: (one.state, one.counted, one.attempts, one.depth) for one in simulation.validations.values()
    }
    assert states == expected, f"validations are not as the model says: {_differing(states, expected)}"
    assert all(counted <= MAX_COUNTED for _, counted, _, _ in states.values())
    rows = raw.execute("SELECT id, verdict, basis, assurance, verdict_validation_id FROM checkpoints")
    shown = {row[0]: tuple(row[1:]) for row in rows.fetchall()}
    for checkpoint in simulation.checkpoints.values():
        current = in_force(checkpoint.history)
        right = (
            (current.verdict, current.basis, current.assurance, current.validation_id)
            if current is not None
            else (None, None, None, None)
        )
        assert shown[checkpoint.id] == right, f"in force on checkpoint {checkpoint.id}: not {right}"


def _differing(one: dict[int, Any], other: dict[int, Any]) -> dict[int, Any]:
    keys = one.keys() | other.keys()
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}
