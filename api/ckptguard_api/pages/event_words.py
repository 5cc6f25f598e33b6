"""Each event of the audit as a sentence; its data are shown beside it as they are."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from ckptguard.cli.plain_text import count_text, printable, seconds_text
from ckptguard.model.service import EventKind

Data = Mapping[str, Any]

_MAX_CHARS: Final = 300


def sentence_of(kind: str, data: Data) -> str:
    """Return what happened, in words; a kind of a later version is named.

    Guarantees: harmless on a page, in a table and on a terminal; no fault in what an older version recorded
    keeps the rest of a list from being shown.
    """
    try:
        sentence = _SENTENCES[EventKind(kind)](data)
    except (KeyError, ValueError, TypeError, AttributeError):
        return kind.replace(".", " ").replace("_", " ")
    return printable(sentence, max_chars=2 * _MAX_CHARS)


def _because(data: Data, *, key: str = "reason") -> str:
    return f": {_text(data[key])}" if data.get(key) else ""


def _text(value: object) -> str:
    return printable(str(value), max_chars=_MAX_CHARS)


def _verdict(data: Data) -> str:
    grade = data.get("assurance") or data.get("basis")
    return str(data.get("verdict") or "no verdict") + (f" ({grade})" if grade else "")


def _run_created(data: Data) -> str:
    return f"run {_text(data['name'])} came to be"


def _run_changed(data: Data) -> str:
    changes = (
        f"{name.replace('_', ' ')} from {_text(change['from'])} to {_text(change['to'])}"
        for name, change in data["changes"].items()
    )
    return f"the policy was changed: {', '.join(changes)}"


def _run_unprotected(data: Data) -> str:
    since = seconds_text(data["unprotected_s"])
    what = "the newest checkpoint that can be resumed from is" if data["has_valid"] else "without any for"
    return f"unprotected: {what} {since}{' old' if data['has_valid'] else ''}"


def _step_went_back(data: Data) -> str:
    return f"step {data['step']} was saved after step {data['highest_step']}, and nobody told of a resume"


def _run_branched(data: Data) -> str:
    start = "nothing" if data["from_step"] is None else f"step {data['from_step']}"
    moved = [
        f"{count_text(data[key], 'checkpoints')} {word}"
        for key, word in (("rolled_back", "rolled back"), ("restored", "restored"))
        if data[key]
    ]
    return f"branch {data['branch']} was opened from {start}" + (f"; {', '.join(moved)}" if moved else "")


def _restarts_failing(data: Data) -> str:
    cleared = len(data["cleared"])
    return "restarts fail whatever they start from" + (
        f"; {count_text(cleared, 'checkpoints')} no longer suspect" if cleared else ""
    )


def _run_restarted(data: Data) -> str:
    outcomes = {
        "resumed": "resumed",
        "failed_loading": "failed while loading",
        "failed_early": "failed early",
        "progressed": "got going",
    }
    steps = "" if data.get("steps_done") is None else f" after {count_text(data['steps_done'], 'steps')}"
    return f"start {_text(data['attempt'])} {outcomes[data['outcome']]}{steps}{_because(data, key='detail')}"


def _fresh_start(data: Data) -> str:
    return f"started from nothing, though there are checkpoints{_because(data, key='detail')}"


def _announced(data: Data) -> str:
    part = f", part {_text(data['part'])} of it is here" if data.get("part") else ""
    return f"a save of step {data['step']} began at {_text(data['location'])}{part}"


def _registered(data: Data) -> str:
    files = "" if data.get("num_files") is None else f", {count_text(data['num_files'], 'files')}"
    size = "" if data.get("bytes_total") is None else f", {count_text(data['bytes_total'], 'bytes')}"
    return f"step {data['step']} is complete at {_text(data['location'])}{files}{size}"


def _superseded(data: Data) -> str:
    if data["superseded_by"] == "rolled_back":
        return "rolled back: the run went on from an earlier step"
    return f"its bytes are overwritten by checkpoint {data['by_checkpoint']}"


def _verdict_changed(data: Data) -> str:
    why = _because(data, key="why")
    return f"verdict of step {data['step']}: {_verdict(data)}, was {_verdict(data['was'])}{why}"


def _released(data: Data) -> str:
    if data.get("lifted"):
        return f"damage was lifted{_because(data)}"
    return f"released from {', '.join(data['holds'])}{_because(data)}"


def _requested(data: Data) -> str:
    asked = f"a verdict of depth {data['depth']} was asked for"
    return asked + ("" if data["is_new"] else ", and one was open already") + _because(data)


def _attempt_ended(data: Data) -> str:
    return f"attempt {data['attempt']} ended without a verdict: {data['ending']}{_because(data)}"


def _finished(data: Data) -> str:
    if data["is_in_force"]:
        return f"verdict {_verdict(data)}"
    return f"verdict {_verdict(data)}, not in force{_because(data, key='why_not_in_force')}"


def _silent(data: Data) -> str:
    seen = datetime.fromisoformat(data["seen_at"])
    return f"worker {_text(data['worker'])} is silent; last heard of {seen:%Y-%m-%d %H:%M:%S} UTC"


def _store_changed(data: Data) -> str:
    words = {"added": "was allowed", "removed": "is allowed no longer", "settings": "has other settings"}
    return f"store {_text(data['name'])} {words[data['change']]}: {_text(data['url'])}"


def _token(data: Data, what: str) -> str:
    whose = "a browser's token" if data.get("browser") else "token"
    return f"{whose} {_text(data['name'])} ({_text(data['hint'])}…) {what}"


_SENTENCES: Final[Mapping[EventKind, Callable[[Data], str]]] = {
    EventKind.RUN_CREATED: _run_created,
    EventKind.RUN_CHANGED: _run_changed,
    EventKind.RUN_UNPROTECTED: _run_unprotected,
    EventKind.RUN_STEP_WENT_BACK: _step_went_back,
    EventKind.RUN_BRANCHED: _run_branched,
    EventKind.RUN_RESTARTS_FAILING: _restarts_failing,
    EventKind.RUN_RESTARTED: _run_restarted,
    EventKind.RUN_FRESH_START: _fresh_start,
    EventKind.CHECKPOINT_ANNOUNCED: _announced,
    EventKind.CHECKPOINT_REGISTERED: _registered,
    EventKind.CHECKPOINT_SUPERSEDED: _superseded,
    EventKind.CHECKPOINT_RESTORED: lambda _: "restored: the run went back to where it is on the way",
    EventKind.CHECKPOINT_INCOMPLETE: lambda _: "the save never came to its end",
    EventKind.CHECKPOINT_DELETED: lambda data: f"its bytes are gone{_because(data)}",
    EventKind.CHECKPOINT_HELD: lambda data: f"{data['hold']}{_because(data)}",
    EventKind.CHECKPOINT_RELEASED: _released,
    EventKind.CHECKPOINT_NOTED: lambda data: f"note: {_text(' '.join(data['text'].split()))}",
    EventKind.CHECKPOINT_VERDICT_CHANGED: _verdict_changed,
    EventKind.VALIDATION_REQUESTED: _requested,
    EventKind.VALIDATION_QUEUED: lambda data: f"queued ({data['reason']}), depth {data['depth']}",
    EventKind.VALIDATION_STARTED: lambda data: f"attempt {data['attempt']} by worker {_text(data['worker'])}",
    EventKind.VALIDATION_ATTEMPT_ENDED: _attempt_ended,
    EventKind.VALIDATION_FINISHED: _finished,
    EventKind.VALIDATION_CANCELLED: lambda data: f"taken back{_because(data, key='why')}",
    EventKind.WORKER_JOINED: lambda data: f"worker {_text(data['worker'])} joined",
    EventKind.WORKER_SILENT: _silent,
    EventKind.WORKER_RETURNED: lambda data: f"worker {_text(data['worker'])} is back",
    EventKind.STORE_CHANGED: _store_changed,
    EventKind.TOKEN_CREATED: lambda data: _token(data, "was made"),
    EventKind.TOKEN_REVOKED: lambda data: _token(data, "was ended"),
    EventKind.WEBHOOK_CHANGED: lambda data: f"webhook {data['webhook_id']}: {data['change']}",
    EventKind.WEBHOOK_TEST: lambda data: f"webhook {data['webhook_id']} was tried",
}
