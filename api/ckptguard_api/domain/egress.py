"""Where a webhook may go: a rule on URLs, and one on the addresses that their hosts turn out to have.

A webhook's URL is the caller's choice and the service sends from inside somebody's network (threats.md,
"Webhook abuse", "SSRF via URI"). A name says nothing about where it leads, so the address that it resolves
to is judged, and that very address is connected to.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

MAX_URL_CHARS: Final = 2048

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST: Final = ip_network("2000::/3")
"""All of IPv6 that is given out (RFC 4291); Python calls more global, some of which carry IPv4 addresses."""
_NUMERIC: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
"""A host whose last label is a number: to resolvers an IPv4 address in one of many notations (WHATWG URL)."""

_NEVER: Final = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local: metadata of AWS, GCP, Azure, OpenStack at .169.254
        "fe80::/10",
        "fd00:ec2::254/128",  # metadata of AWS over IPv6
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # Azure's wire server: a public address that only virtual machines reach
        "64:ff9b::/96",  # NAT64, 6to4 and Teredo carry an IPv4 address that may be any of these
        "64:ff9b:1::/48",
        "2002::/16",
        "2001::/32",
    )
)


def url_problems(url: str, *, allowed_networks: Sequence[str]) -> tuple[str, ...]:
    """List why a URL cannot be that of a webhook, as far as its text shows.

    Args:
        url: As the caller wrote it.
        allowed_networks: Private networks that the operator allows.
    """
    return tuple(_url_problems(url, allowed_networks))


def address_problem(address: str, *, is_plain: bool, allowed_networks: Sequence[str]) -> str | None:
    """Say why nothing is sent to an address; None: it may be.

    Args:
        address: IPv4 or IPv6, as a resolver gave it.
        is_plain: The URL is `http`: this machine itself is then the only place to go.
        allowed_networks: Private networks that the operator allows.
    """
    ip = _unwrapped(ip_address(address.partition("%")[0]))
    if any(ip in network for network in _NEVER):
        return f"{ip} is link-local, or a metadata service"
    if is_plain and not ip.is_loopback:
        return f"{ip} is not this machine, and http:// goes nowhere else"
    if _is_public(ip):
        return None
    if any(ip in ip_network(network) for network in allowed_networks):
        return None
    return f"{ip} is private; CKPTGUARD_WEBHOOK_ALLOWED_NETWORKS={ip} would allow it"


def _is_public(ip: Address) -> bool:
    is_given_out = isinstance(ip, IPv4Address) or ip in _GLOBAL_UNICAST
    return is_given_out and ip.is_global and not ip.is_multicast


def _unwrapped(ip: Address) -> Address:
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def _url_problems(url: str, allowed_networks: Sequence[str]) -> Iterator[str]:
    if len(url) > MAX_URL_CHARS:
        yield f"{len(url)} characters long, at most {MAX_URL_CHARS}"
        return
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        yield "characters that a URL does not have"
        return
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield f"not a URL: {error}"
        return
    yield from _parts_problems(parts, allowed_networks)


def _parts_problems(parts: SplitResult, allowed_networks: Sequence[str]) -> Iterator[str]:
    if parts.scheme not in ("https", "http"):
        yield "only https:// is sent to"
    if parts.username is not None or parts.password is not None:
        yield "a user or password in the URL; receivers know us by the signature"
    if parts.fragment:
        yield "a fragment, which is never sent"
    if not parts.hostname:
        yield "no host"
        return
    is_plain = parts.scheme == "http"
    if is_plain and not (_is_this_machine(parts.hostname) and allowed_networks):
        yield "http:// would show what is sent to everybody on the way; use https://"
    elif (address := _literal(parts.hostname)) is not None:
        problem = address_problem(address, is_plain=is_plain, allowed_networks=allowed_networks)
        yield from () if problem is None else (problem,)
    elif _NUMERIC.fullmatch(parts.hostname):
        yield "a number in place of a host; write an address in its usual form"


def _is_this_machine(host: str) -> bool:
    address = _literal(host)
    return host == "localhost" if address is None else ip_address(address).is_loopback


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return None
