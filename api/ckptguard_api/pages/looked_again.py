"""Pages that are looked at again while they are open: where nothing changed, the answer is only that."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from ckptguard_api.pages.rendering import SECURITY_HEADERS
from ckptguard_api.pages.visit import Visit
from ckptguard_api.use_cases.live import LatestNews, latest_news

GOOD_FOR_S: Final = 60
"""What grows with time alone, as what a failure would cost, is told anew so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a page was made of.

    Args:
        visit: Whose.
        news: Read before all that the page shows.
        has_ages: Whether it shows what grows with time alone.
    """

    visit: Visit
    news: LatestNews
    has_ages: bool

    @property
    def etag(self) -> str:
        """Another one where the page may be another one."""
        news = self.news
        if not self.has_ages:
            return f'W/"{news.event_id}"'
        minute = int(news.now.timestamp()) // GOOD_FOR_S
        told = 0.0 if news.progress_at is None else news.progress_at.timestamp()
        return f'W/"{news.event_id}-{minute}-{told:.3f}"'

    @property
    def is_known(self) -> bool:
        """Whether the browser shows this already."""
        return self.visit.request.headers.get("if-none-match") == self.etag

    def unchanged(self) -> Response:
        """Say so."""
        headers = SECURITY_HEADERS | {"ETag": self.etag}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)

    def named(self, answer: Response) -> Response:
        """Let a page be asked for again by its name."""
        answer.headers["ETag"] = self.etag
        return answer


def look(visit: Visit, *, run: str | None = None, has_ages: bool = True) -> Look:
    """Return what there is to look at, before a page reads it.

    Args:
        visit: Of the page.
        run: That it is about; None: more than one.
        has_ages: Whether it shows what grows with time alone, or how far a validation is.

    Raises:
        NotFoundError: There is no such run.
    """
    news = latest_news(visit.services, project_id=visit.project_id, run=run)
    return Look(visit=visit, news=news, has_ages=has_ages)
