"""File maps made lately, so that a page of a large checkpoint costs no map of its own."""

import threading
from collections import OrderedDict
from typing import Final

from ckptguard_api.domain.file_map import FileMap

_MAX_CELLS: Final = 8_000_000
_CELLS_OF_A_PATH: Final = 100
"""What a missing file's path takes, in cells; a cell takes a byte."""


class KeptMaps:
    """A bounded memory of maps by validation; any thread.

    Nothing here is ever out of date: a verdict and what was found with it never change, so neither does
    its map.

    Args:
        max_cells: Of all maps together; the longest unused go first.
    """

    def __init__(self, *, max_cells: int = _MAX_CELLS) -> None:
        self._max_cells = max_cells
        self._num_cells = 0
        self._maps: OrderedDict[int, FileMap] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, validation_id: int) -> FileMap | None:
        """Return the map of a verdict, if it was made lately."""
        with self._lock:
            found = self._maps.get(validation_id)
            if found is not None:
                self._maps.move_to_end(validation_id)
            return found

    def put(self, validation_id: int, made: FileMap) -> None:
        """Remember the map of a verdict; one that is larger than all may be is not kept."""
        with self._lock:
            if validation_id in self._maps or _cells(made) > self._max_cells:
                return
            self._maps[validation_id] = made
            self._num_cells += _cells(made)
            while self._num_cells > self._max_cells:
                self._num_cells -= _cells(self._maps.popitem(last=False)[1])


def _cells(made: FileMap) -> int:
    return len(made.states) + _CELLS_OF_A_PATH * len(made.missing)
