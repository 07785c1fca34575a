"""Headers that each answer of the console has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from codemode.plugins import WrongTypeError

from .addresses import read_address

_SOURCES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def security_headers(embed_in: Iterable[str] = ()) -> Mapping[str, str]:
    """Return the headers; ``embed_in`` are the origins whose pages may frame the console. Raises `ValueError`."""
    if isinstance(embed_in, str):
        raise WrongTypeError(f"embed_in must be a list of origins, got the text {embed_in!r}")
    origins = [require_origin(one, "embed_in") for one in embed_in]
    ancestors = " ".join(origins) or "'none'"
    found = {
        "content-security-policy": "; ".join([*_SOURCES, f"frame-ancestors {ancestors}"]),
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    if not origins:
        found["x-frame-options"] = "DENY"
    return MappingProxyType(found)


def require_origin(text: str, what: str) -> str:
    """Return an origin, such as ``https://desk.acme.com``, as browsers write it. Raises `ValueError` for all else."""
    origin = origin_of(text)
    if origin is None or urlsplit(text)[2:] not in (("", "", ""), ("/", "", "")):
        raise ValueError(f"{what} must be origins such as https://desk.example.com, got {text!r}")
    return origin


def origin_of(text: str) -> str | None:
    """Return the origin of a URL: scheme, host and a port that is not the scheme's own; None for what has none."""
    if not text.isascii() or not text.isprintable() or set(text) & set(" '\";,*\\"):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def host_of(text: str) -> str | None:
    """Return the name or address in a ``Host``, without a port; None for what is none."""
    origin = origin_of(f"http://{text}")
    if origin is None or set(text) & set("/?#@"):
        return None
    return urlsplit(origin).hostname


class OwnHosts:
    """By which names the console is called. A page of somebody else's whose name was turned to its address has another.

    Addresses are nobody's names. Without ``names`` all are its own, for proxies change them. Raises `ValueError`
    for what is no name.
    """

    def __init__(self, names: Iterable[str], base_origin: str | None = None) -> None:
        if isinstance(names, str):
            raise WrongTypeError(f"hosts must be a list of names, got the text {names!r}")
        given = [(name, host_of(name)) for name in names]
        if any(host is None for _, host in given):
            raise ValueError(f"hosts must be names such as desk.example.com, got {[name for name, _ in given]!r}")
        own = {host for _, host in given}
        if own and base_origin is not None:
            own.add(urlsplit(base_origin).hostname)
        self._names = frozenset(own)

    def has(self, hosts: list[str]) -> bool:
        """Say whether what a request's ``Host`` headers say is the console."""
        if not self._names:
            return True
        host = host_of(hosts[0]) if len(hosts) == 1 else None
        return host is not None and (host in self._names or read_address(host) is not None)
