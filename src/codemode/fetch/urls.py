"""Parse URLs to a canonical form and check them against the fetch policy.

URLs that two parsers could read differently are refused. The canonical form is plain RFC 3986, so that policy, client
and server use the same URL.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urljoin

from ..records import record

MAX_URL_CHARACTERS = 16_384

_DEFAULT_PORTS = {"http": 80, "https": 443}
# ASCII: without it, ignoring case would take U+017F for an "s".
_URL = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.ASCII | re.IGNORECASE | re.DOTALL)
_AMBIGUOUS_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\\]")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]*))?", re.ASCII)
_NAMED = re.compile(r"([^:\[\]]+)(?::([0-9]*))?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)
_SAFE_IN_PATH = "-._~!$&'()*+,;=:@/%"
_SAFE_IN_QUERY = _SAFE_IN_PATH + "?"
_MAX_HOST_CHARACTERS = 253
# Servers that decode "%2F" or "%5C", or cut path parameters, before they look for "..".
_PARENT_SEGMENT = re.compile(r"(?:^|[/\\])\.\.(?:[/\\;\x00]|$)")
_MAX_DECODINGS = 4


class UrlError(ValueError):
    """An unacceptable URL. The message starts with a verb: "is not ...", "has ..."."""


@record
class Url:
    """An absolute http(s) URL in canonical form, without a fragment.

    ``host`` is a lower-case ASCII name, a dotted IPv4 address or an IPv6 address without brackets.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str | None = None

    @property
    def netloc(self) -> str:
        """Host and port as in the URL, the default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def target(self) -> str:
        """Path and query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def has_ip_host(self) -> bool:
        """True when the host is an IP address."""
        return ":" in self.host or _NUMBER.fullmatch(self.host.rpartition(".")[2]) is not None

    @property
    def is_localhost(self) -> bool:
        """True if the host name always means this machine (RFC 6761)."""
        return self.host == "localhost" or self.host.endswith(".localhost")

    def __str__(self) -> str:
        """Return the whole URL."""
        return self.origin + self.target


def parse_url(text: str) -> Url:
    """Return the canonical form of an absolute URL. Raises `UrlError`."""
    text = text.strip(" ")
    if len(text) > MAX_URL_CHARACTERS:
        raise UrlError(f"is longer than {MAX_URL_CHARACTERS} characters")
    if _AMBIGUOUS_CHARACTERS.search(text):
        raise UrlError("has a backslash or a control character in it")
    shape = _URL.fullmatch(text)
    if shape is None:
        raise UrlError("is not an absolute http or https URL")
    scheme, authority, path, query = shape.groups()
    host, port = _parse_authority(authority)
    scheme = scheme.lower()
    url = Url(
        scheme,
        host,
        _DEFAULT_PORTS[scheme] if port is None else port,
        _remove_dot_segments(_percent_encode(path, _SAFE_IN_PATH)),
        None if query is None else _percent_encode(query, _SAFE_IN_QUERY),
    )
    if len(str(url)) > MAX_URL_CHARACTERS:
        raise UrlError(f"is longer than {MAX_URL_CHARACTERS} characters")
    return url


def resolve_redirect_url(url: Url, location: str) -> Url:
    """Return the target of a redirect from ``url``. Raises `UrlError`."""
    if len(location) > MAX_URL_CHARACTERS:
        raise UrlError(f"is longer than {MAX_URL_CHARACTERS} characters")
    if _AMBIGUOUS_CHARACTERS.search(location):
        raise UrlError("has a backslash or a control character in it")
    try:
        return parse_url(urljoin(str(url), location.strip(" ")))
    except UrlError:
        raise
    except ValueError as error:
        raise UrlError("is not a URL") from error


def _parse_authority(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise UrlError("has credentials in it")
    if bracketed := _BRACKETED.fullmatch(authority):
        return _parse_ipv6(bracketed[1]), _parse_port(bracketed[2])
    named = _NAMED.fullmatch(authority)
    if named is None:
        raise UrlError("has no valid host")
    return _parse_host(named[1]), _parse_port(named[2])


def _parse_port(text: str | None) -> int | None:
    if not text:
        return None
    if len(text) > 5 or not 1 <= int(text) <= 65535:
        raise UrlError("has no valid port")
    return int(text)


def _parse_ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise UrlError("has no valid IPv6 address") from None


def _parse_host(text: str) -> str:
    host = (text if text.isascii() else _encode_idna(text)).lower()
    labels = host.split(".")
    if len(host) > _MAX_HOST_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise UrlError("has no valid host")
    if _NUMBER.fullmatch(labels[-1]):
        return _parse_ipv4(host)
    return host


def _parse_ipv4(host: str) -> str:
    # 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 are 127.0.0.1 to some parsers and a name to others.
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise UrlError("has an IPv4 address that is not four plain decimal numbers") from None


def _encode_idna(host: str) -> str:
    if len(host) > _MAX_HOST_CHARACTERS:
        raise UrlError("has no valid host")  # and looking for one would take quadratic time
    try:
        import idna
    except ModuleNotFoundError:
        raise UrlError("has a host that is not ASCII: write it in its xn-- form") from None
    try:
        return idna.encode(host, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:
        raise UrlError("has no valid host") from None


def _percent_encode(text: str, safe: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", text), safe=safe, errors="replace")


def _remove_dot_segments(path: str) -> str:
    result: list[str] = []
    segments = path.split("/")[1:]
    for position, segment in enumerate(segments, 1):
        plain = segment.lower().replace("%2e", ".")
        if plain not in (".", ".."):
            result.append(segment)
            continue
        if plain == ".." and result:
            result.pop()
        if position == len(segments):
            result.append("")
    return "/" + "/".join(result)


# --- allowed URLs ---


@record
class UrlRules:
    """Which URLs are allowed: whole origins, and prefixes that end on a path boundary."""

    origins: frozenset[str]
    prefixes: tuple[Url, ...]

    @classmethod
    def parse(cls, origins: Iterable[str], prefixes: Iterable[str]) -> UrlRules:
        """Read both lists. Raises `ValueError` naming the option and the entry that is wrong."""
        return cls(
            frozenset(_parse_url_rule(text, "allowed_origins").origin for text in origins),
            tuple(_parse_url_rule(text, "allowed_url_prefixes") for text in prefixes),
        )

    def allows(self, url: Url) -> bool:
        """True when an origin or a prefix covers the URL."""
        return url.origin in self.origins or any(_is_under_prefix(url, prefix) for prefix in self.prefixes)


def _parse_url_rule(text: str, option: str) -> Url:
    try:
        url = parse_url(text)
    except UrlError as error:
        raise ValueError(f"fetch_policy.{option}: {text!r} {error}") from None
    if "?" in text or "#" in text:
        raise ValueError(f"fetch_policy.{option}: {text!r} has a query or a fragment")
    if option == "allowed_origins" and url.path != "/":
        raise ValueError(f"fetch_policy.{option}: {text!r} has a path: put it into allowed_url_prefixes")
    return url


def _is_under_prefix(url: Url, prefix: Url) -> bool:
    if url.origin != prefix.origin:
        return False
    if prefix.path == "/":
        return True
    folder = prefix.path if prefix.path.endswith("/") else prefix.path + "/"
    return (url.path == prefix.path or url.path.startswith(folder)) and not _may_leave_prefix(url.path)


def _may_leave_prefix(path: str) -> bool:
    for _ in range(_MAX_DECODINGS):
        if _PARENT_SEGMENT.search(path):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True
