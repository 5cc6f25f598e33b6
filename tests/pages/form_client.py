"""A browser without a window: cookie, `Origin`, and the secret that forms of its pages carry."""

from dataclasses import dataclass

import httpx

from ckptguard.model.service import Scope
from ckptguard_api.pages.door import COOKIE, csrf_secret
from tests.served_app import ServedApp


@dataclass(frozen=True, kw_only=True)
class FormClient:
    """Somebody who is signed in.

    Args:
        http: With the cookie.
        csrf: What its forms carry.
    """

    http: httpx.Client
    csrf: str

    def get(self, path: str, **options: str) -> httpx.Response:
        """Ask for a page."""
        return self.http.get(path, **options)  # type: ignore[arg-type] # of httpx

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as a page of the service does."""
        return self.http.post(path, data={"csrf": self.csrf, **fields})


def form_client(served: ServedApp, *scopes: Scope, project: str | None = None) -> FormClient:
    """Return somebody who is signed in with a new token; without scopes: `admin`."""
    http = served.new_client(Origin=served.url)
    answer = http.post("/ui/sign-in", data={"token": served.token(*scopes, project=project)})
    assert answer.status_code == 303, answer.text
    return FormClient(http=http, csrf=csrf_secret(http.cookies[COOKIE]))
