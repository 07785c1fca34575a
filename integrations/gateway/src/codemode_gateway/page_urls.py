"""Check the URL of a page that a person is asked to open, and return its host."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import idna

MAX_URL_CHARACTERS = 8_192

_HOST_PATTERN = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
_BRACKETED_HOST = re.compile(r"\[[^\[\]]*\](:[0-9]*)?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class PageURLError(ValueError):
    """A URL that must not be opened; the message says why."""


def require_safe_page_host(url: object) -> str:
    """Return the host that a browser opens for ``url``, in lower case and as punycode.

    Security: raises `PageURLError` if a reader and a browser could see different hosts: backslashes, user information,
    white space, control characters, escapes or unusual numbers in the host.
    """
    if not isinstance(url, str) or len(url) > MAX_URL_CHARACTERS:
        raise PageURLError(f"must be a text of at most {MAX_URL_CHARACTERS:,} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        raise PageURLError("must have no spaces, control characters or backslashes")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise PageURLError("must be https, or http, and have a host") from None
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise PageURLError("must be https, or http, and have a host")
    if "@" in parts.netloc:
        raise PageURLError("must have no user name or password in front of the host")
    if "[" not in parts.netloc:
        return _normalize_host_name(host)
    # Python before 3.11.8 accepts `evil.example[::1]`.
    if _BRACKETED_HOST.fullmatch(parts.netloc) is None:
        raise PageURLError("must have a host that all browsers interpret alike")
    return f"[{_normalize_ipv6(host)}]"


def is_safe_page_url(url: object) -> bool:
    """Return whether a person may be asked to open ``url``."""
    try:
        require_safe_page_host(url)
    except PageURLError:
        return False
    return True


def _normalize_ipv6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        raise PageURLError("must have a host that all browsers interpret alike") from None
    if address.scope_id is not None:
        raise PageURLError("must have an IPv6 address without a zone")
    return address.compressed


def _normalize_host_name(host: str) -> str:
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise PageURLError("must have a host that all browsers interpret alike") from None
    if _HOST_PATTERN.fullmatch(name) is None:
        raise PageURLError("must have a host that all browsers interpret alike")
    # A browser reads a host whose last label is a number as an IPv4 address, in octal and hexadecimal too.
    if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise PageURLError("must write an IPv4 address as four decimal numbers") from None
    return name
