"""Settings of serving over HTTP: limits, users, token verification and trusted proxies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, cast
from urllib.parse import urlsplit

from ..config.model import ConfigError
from .principals import LOCAL

PATH = "codemode.auth"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Of signatures that only the authorization server can make: with a shared key the gateway could too."""


@dataclass(frozen=True)
class Introspection:
    """Tokens are shown to the authorization server at ``url``, where the gateway is ``client_id``."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class Jwt:
    """Tokens are signed by a key at ``jwks_url``, in one of these ways."""

    jwks_url: str
    algorithms: tuple[str, ...] = ALGORITHMS


@dataclass(frozen=True)
class TokenCheck:
    """A token is to be of ``issuer``, without a slash at its end, and for one of ``audiences``."""

    how: Introspection | Jwt
    issuer: str
    audiences: tuple[str, ...]


def token_check(
    auth: Mapping[str, Any], *, issuer: str | None, url: str | None, audiences: tuple[str, ...]
) -> TokenCheck | None:
    """Return how tokens are verified; None where nothing is said of it. Raises `ConfigError`."""
    said = [key for key in ("introspection", "jwt") if auth.get(key) is not None]
    if not said:
        if audiences:
            raise ConfigError(f"{PATH}.audience is of no use without {PATH}.jwt or {PATH}.introspection")
        return None
    path = f"{PATH}.{said[0]}"
    if len(said) > 1:
        raise ConfigError(f"{PATH}.introspection and {PATH}.jwt exclude each other: remove one")
    if issuer is None:
        raise ConfigError(f"{path} needs {PATH}.issuer, the authorization server whose tokens are taken")
    if not audiences and url is None:
        raise ConfigError(
            f"{path} needs {PATH}.url, where the gateway is for others, or {PATH}.audience, what tokens for it name:"
            " without, tokens for other servers would be taken"
        )
    own = audiences or (f"{url}/mcp", cast("str", url))
    return TokenCheck((_introspection if said[0] == "introspection" else _jwt)(auth[said[0]], path), issuer, own)


def _introspection(said: Any, path: str) -> Introspection:
    found = _object(said, path, ("url", "clientId", "clientSecret"))
    client_id, secret = found.get("clientId"), found.get("clientSecret")
    if not (isinstance(client_id, str) and client_id and isinstance(secret, str) and secret):
        raise ConfigError(f"{path} needs clientId and clientSecret, as which the gateway asks there")
    return Introspection(_secure(found.get("url"), f"{path}.url"), client_id, secret)


def _jwt(said: Any, path: str) -> Jwt:
    found = _object(said, path, ("jwksUrl", "algorithms"))
    algorithms = found.get("algorithms", ALGORITHMS)
    several = [algorithms] if isinstance(algorithms, str) else algorithms
    if not isinstance(several, list | tuple) or not several or not set(cast("list[Any]", several)) <= {*ALGORITHMS}:
        raise ConfigError(f"{path}.algorithms must be some of {', '.join(ALGORITHMS)}")
    return Jwt(_secure(found.get("jwksUrl"), f"{path}.jwksUrl"), tuple(cast("list[str]", several)))


def _object(said: Any, path: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise ConfigError(f"{path} must be an object with {', '.join(keys)}")
    found = cast("Mapping[str, Any]", said)
    if unknown := sorted(set(found) - set(keys)):
        raise ConfigError(f"{path}.{unknown[0]} is not known; {path} has {', '.join(keys)}")
    return found


def _secure(said: Any, path: str) -> str:
    try:
        parts = urlsplit(said) if isinstance(said, str) and said.isprintable() else None
        is_one = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_one = None, False
    if parts is None or not is_one or parts.fragment or "@" in parts.netloc:
        raise ConfigError(f"{path} must be a URL such as https://login.example.com/...")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(f"{path} must be https: whoever reads along would know the tokens, or could make some")
    return cast("str", said)


def is_loopback(host: str) -> bool:
    """Say whether a name or address, of a URL or a socket, is this machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


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
        for name in named:
            ip_network(name)
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
