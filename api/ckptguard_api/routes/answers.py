"""Parts that answers share."""

from typing import Annotated, Generic, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel

from ckptguard_api.domain.paging import DEFAULT_LIMIT, MAX_CURSOR_CHARS, MAX_FILES_LIMIT, MAX_LIMIT

Item = TypeVar("Item")

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]
"""An id in a path."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Items of one page, at most.")]
FilesLimit = Annotated[int, Query(ge=1, le=MAX_FILES_LIMIT, description="Files of one page, at most.")]
"""A launcher holds every file against what it sees, and each page reads the list from its start."""
Cursor = Annotated[str | None, Query(max_length=MAX_CURSOR_CHARS, description="`next` of the page before.")]
FIRST_LIMIT = DEFAULT_LIMIT


class PageAnswer(BaseModel, Generic[Item]):
    """One page of a list; `next` is the cursor of the page after it, if there is one."""

    items: list[Item]
    next: str | None
