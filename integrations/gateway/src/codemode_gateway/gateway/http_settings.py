"""What ``codemode.auth`` says about who may call over HTTP, and under which limits, checked. Opens nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from ..config.values import ConfigError
from .http_proxies import Proxies
from .http_token_checks import TokenCheck, token_check
from .principals import LOCAL

_PATH = "codemode.auth"
_KEYS = (
    *("tokens", "issuer", "scopes", "audience", "jwt", "introspection"),
    *("url", "origins", "hosts", "proxies", "console"),
)
_HASH = "sha256:"
_HEX = frozenset("0123456789abcdef")
_MOST_NAME_CHARACTERS = 200
VERIFIED = "oauth:"
"""What the ids of principals begin with whom a token verifier has named, and no name of the file may."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Bounds on what callers may hold open. Times are in seconds, sizes in bytes.

    ``held_bytes`` are those of all messages of one user that are not done with.
    """

    body_bytes: int = 4 << 20
    body_items: int = 200_000
    body_seconds: float = 30.0
    held_bytes: int = 32 << 20
    header_seconds: float = 15.0
    keep_alive_seconds: int = 15
    sessions: int = 200
    idle_seconds: float = 1800.0
    requests: int = 200
    principals: int = 1000
    connections: int = 1000
    stop_seconds: float = 5.0


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Who may call. ``tokens`` are names by the SHA-256 of their tokens (64 hexadecimal digits).

    ``url`` is where the gateway is for others (``https://tools.acme.com``), without a slash at its end. ``origins`` are
    those of pages that may call it, beside its own. ``hosts`` are names by which it is called, ``proxies`` addresses
    and networks of those that say for whom they call. ``console`` is
    ``auth.console`` as it is: a token, or users by the hashes of theirs. ``check`` says by what other tokens are
    verified, those of ``issuer``.
    """

    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    url: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    console: str | Mapping[str, Any] | None = None
    check: TokenCheck | None = None


def http_settings(auth: Mapping[str, Any]) -> HttpSettings:
    """Return what ``codemode.auth`` says. Raises `ConfigError` that names the place and what may stand there."""
    if unknown := sorted(set(auth) - set(_KEYS)):
        raise ConfigError(f"{_PATH}.{unknown[0]} is not known; {_PATH} has {', '.join(_KEYS)}")
    issuer, url = _url(auth.get("issuer"), "issuer"), _url(auth.get("url"), "url")
    return HttpSettings(
        tokens=_tokens(auth.get("tokens", {})),
        issuer=issuer,
        scopes=_scopes(auth.get("scopes", ())),
        url=url,
        check=token_check(auth, issuer=issuer, url=url, audiences=_texts(auth.get("audience", ()), "audience")),
        origins=tuple(_origin(one) for one in _texts(auth.get("origins", ()), "origins")),
        hosts=tuple(_host(one) for one in _texts(auth.get("hosts", ()), "hosts")),
        proxies=_proxies(_texts(auth.get("proxies", ()), "proxies")),
        console=_console(auth.get("console")),
    )


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token, as 64 hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _tokens(said: Any) -> dict[str, str]:
    if not isinstance(said, Mapping):
        raise ConfigError(f"{_PATH}.tokens must be an object of users by the hashes of their tokens")
    found: dict[str, str] = {}
    for key, user in cast("Mapping[Any, Any]", said).items():
        digest = str(key).lower().removeprefix(_HASH)
        if len(digest) != 64 or not set(digest) <= _HEX:
            # The key may be a token that was meant to be hashed: it is not told.
            raise ConfigError(
                f'the keys of {_PATH}.tokens must be "sha256:" and the SHA-256 of a token, in hexadecimal'
            )
        found[digest] = _name(user, f"{_PATH}.tokens[{_HASH}{digest[:8]}...]")
    return found


def _name(user: Any, path: str) -> str:
    said: Mapping[str, Any] = cast("Mapping[str, Any]", user) if isinstance(user, Mapping) else {}
    name = said.get("name")
    if set(said) != {"name"} or not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME_CHARACTERS:
        raise ConfigError(f'{path} must be {{"name": ...}}, a text of at most {_MOST_NAME_CHARACTERS} characters')
    if not name.isprintable() or name != name.strip() or name.startswith(VERIFIED):
        raise ConfigError(f"{path}.name must be a visible text that does not begin with {VERIFIED!r}, got {name!r}")
    if name == LOCAL.id:
        raise ConfigError(f"{path}.name: {name!r} is who uses the gateway without sign-in; take another")
    return name


def _console(said: Any) -> str | Mapping[str, Any] | None:
    if said is None or (isinstance(said, str) and len(said) >= 16):
        return said
    if isinstance(said, Mapping) and said:
        return cast("Mapping[str, Any]", said)
    raise ConfigError(
        f"{_PATH}.console must be a token of at least 16 characters, or an object of users by the hashes of their"
        ' tokens: {"sha256:...": {"name": ..., "tenants": [...]}}'
    )


def _texts(said: Any, key: str) -> tuple[str, ...]:
    several = [said] if isinstance(said, str) else said
    if not isinstance(several, list | tuple) or not all(isinstance(one, str) for one in cast("list[Any]", several)):
        raise ConfigError(f"{_PATH}.{key} must be a list of texts")
    return tuple(cast("list[str]", several))


def _scopes(said: Any) -> tuple[str, ...]:
    found = tuple(part for one in _texts(said, "scopes") for part in one.split())
    # They stand in a header, between quotes.
    if not all(one.isascii() and one.isprintable() and not set(one) & set('"\\') for one in found):
        raise ConfigError(f"{_PATH}.scopes must be scopes as authorization servers write them")
    return found


def _url(said: Any, key: str) -> str | None:
    if said is None:
        return None
    parts = urlsplit(said) if isinstance(said, str) and said.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{_PATH}.{key} must be a URL such as https://tools.example.com")
    return cast("str", said).rstrip("/")


def _proxies(named: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Proxies(named)
    except ValueError as error:
        said = f"{_PATH}.proxies must be addresses or networks such as 10.0.0.7 and 10.1.0.0/16: {error}"
        raise ConfigError(said) from error
    return named


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or text != f"{parts.scheme}://{parts.netloc}".lower()
    ):
        raise ConfigError(f"{_PATH}.origins must be origins such as https://desk.example.com, got {text!r}")
    return text


def _host(text: str) -> str:
    if not text or not set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-"):
        raise ConfigError(f"{_PATH}.hosts must be names such as tools.example.com, without a port, got {text!r}")
    return text
