"""`--layout '{run}/step-{step}'`: which folders below a root are steps, and of which run."""

import re
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import ConfigError

_TOKEN: Final = re.compile(r"\{(\w*)\}|(\*)")
_GROUPS: Final = {"run": r"(?P<run>[^/]+)", "step": r"(?P<step>\d{1,18})"}
_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLayout:
    """A pattern of paths, as deep as it is written.

    Args:
        text: As a person wrote it.
        pattern: Of a whole path below the root, with group `step` and perhaps `run`.
        depth: Segments of a path.
    """

    text: str
    pattern: re.Pattern[str]
    depth: int

    @property
    def names_runs(self) -> bool:
        """Whether a path tells its run."""
        return "run" in self.pattern.groupindex

    def match(self, path: str) -> tuple[str | None, int] | None:
        """Return run (None where the layout names none) and step of a path; None for any other path."""
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        return (found["run"] if self.names_runs else None), int(found["step"])


def parse_layout(text: str) -> FolderLayout:
    """Parse a layout: `{step}` once, `{run}` at most once, `*` for any part of one folder's name.

    Raises:
        ConfigError: It is none; says why.
    """
    segments = text.strip("/").split("/")
    names = [match[1] for match in _TOKEN.finditer(text) if match[2] is None]
    problem = _problem(segments, names)
    if problem is not None:
        msg = f"--layout takes folders like '{{run}}/step-{{step}}': {problem} in {text!r}"
        raise ConfigError(msg)
    pattern = "/".join(map(_segment, segments))
    return FolderLayout(text=text, pattern=re.compile(pattern, re.ASCII), depth=len(segments))


def _problem(segments: list[str], names: list[str]) -> str | None:
    unknown = [name for name in names if name not in _GROUPS]
    if unknown:
        return f"unknown {{{unknown[0]}}}"
    if names.count("step") != 1:
        return "{step} is needed once"
    if names.count("run") > 1:
        return "{run} stands more than once"
    if any(segment in {"", ".", ".."} for segment in segments):
        return "an empty folder, `.` or `..`"
    if any(_TOKEN.sub("", segment).count(brace) for segment in segments for brace in "{}"):
        return "a brace alone"
    return f"more than {_MAX_DEPTH} folders" if len(segments) > _MAX_DEPTH else None


def _segment(text: str) -> str:
    pieces, end = [], 0
    for match in _TOKEN.finditer(text):
        pieces += [re.escape(text[end : match.start()]), _GROUPS.get(match[1] or "", "[^/]*")]
        end = match.end()
    return "".join([*pieces, re.escape(text[end:])])
