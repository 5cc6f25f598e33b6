"""Send one webhook message: to an address that was judged, within a time, without following anything.

The host's name is resolved once, every address is judged (`domain.egress`), and the connection goes to
one of those: a name that points elsewhere a moment later changes nothing. Certificates are checked
against the name all the same. No redirect is followed, no proxy of the environment is used, and nothing
of the answer is read but its head.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import httpx

from ckptguard_api.domain.egress import address_problem, url_problems

_PORTS: Final = {"https": 443, "http": 80}
Resolver = Callable[[str, int], Coroutine[Any, Any, Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came back.

    Args:
        status: HTTP status; None: no answer, or nothing was sent.
        error: Why it is no success; None: it is one.
    """

    status: int | None
    error: str | None


class RefusedAddressError(Exception):
    """Nothing was sent: the host leads to where webhooks may not go."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return every address of a host, in the resolver's order.

    Raises:
        OSError: It has none, or no resolver answered.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)  # reading all roots takes 50 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The one way out of the service.

    Args:
        allowed_networks: Private networks that the operator allows.
        timeout_s: For everything together, from the name to the status.
        resolve: Names to addresses.
    """

    allowed_networks: tuple[str, ...]
    timeout_s: float
    resolve: Resolver = resolve

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Send once, and say what came back; never raises for what a receiver does."""
        try:
            async with asyncio.timeout(self.timeout_s):
                status = await self._status_of(httpx.URL(url), headers, body)
        except TimeoutError:
            return Outcome(status=None, error=f"no answer within {self.timeout_s:g} s")
        except RefusedAddressError as error:
            return Outcome(status=None, error=f"not sent: {error}")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Outcome(status=None, error=f"{type(error).__name__}: {error}")
        return Outcome(status=status, error=_error_of(status))

    async def _status_of(self, url: httpx.URL, headers: Mapping[str, str], body: bytes) -> int:
        address = await self._judged_address(url)
        pinned = url.copy_with(host=address)
        async with httpx.AsyncClient(
            trust_env=False, follow_redirects=False, timeout=self.timeout_s
        ) as client:
            request = client.build_request(
                "POST",
                pinned,
                content=body,
                headers={**headers, "Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": url.host},
            )
            answer = await client.send(request, stream=True)
            await answer.aclose()
            return answer.status_code

    async def _judged_address(self, url: httpx.URL) -> str:
        problems = url_problems(str(url), allowed_networks=self.allowed_networks)
        if problems:
            raise RefusedAddressError("; ".join(problems))
        addresses = await self.resolve(url.host, url.port or _PORTS[url.scheme])
        judged = (
            address_problem(address, is_plain=url.scheme == "http", allowed_networks=self.allowed_networks)
            for address in addresses
        )
        refused = sorted({problem for problem in judged if problem is not None})
        if refused or not addresses:  # one bad answer among good ones is how rebinding begins
            raise RefusedAddressError("; ".join(refused) or "the host has no address")
        return addresses[0]


def _error_of(status: int) -> str | None:
    if httpx.codes.is_success(status):
        return None
    if httpx.codes.is_redirect(status):
        return f"HTTP {status}: redirects are not followed; set the webhook's URL to the new place"
    return f"HTTP {status}"
