"""Ids of projects by name; a project keeps its name and its id for ever."""

from typing import Final

_MAX_PROJECTS: Final = 4096


class ProjectIds:
    """A bounded memory; one that is full starts anew."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        """Return the id, if it is remembered."""
        return self._ids.get(name)

    def put(self, name: str, project_id: int) -> None:
        """Remember an id."""
        if len(self._ids) >= _MAX_PROJECTS:
            self._ids.clear()
        self._ids[name] = project_id
