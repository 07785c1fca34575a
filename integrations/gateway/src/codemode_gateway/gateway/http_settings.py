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
"""Asymmetric algorithms only: with a shared key the gateway could sign tokens too."""


@dataclass(frozen=True)
class IntrospectionSettings:
    """RFC 7662 introspection at ``url`` with the gateway's client credentials."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class JwtSettings:
    """Signed tokens with keys from ``jwks_url`` and one of the algorithms."""

    jwks_url: str
    algorithms: tuple[str, ...] = ALGORITHMS


@dataclass(frozen=True)
class TokenVerificationSettings:
    """Tokens must come from ``issuer`` (no trailing slash) and be for one of ``audiences``."""

    method_settings: IntrospectionSettings | JwtSettings
    issuer: str
    audiences: tuple[str, ...]


def parse_token_verification(
    auth: Mapping[str, Any], *, issuer: str | None, url: str | None, audiences: tuple[str, ...]
) -> TokenVerificationSettings | None:
    """Return the token verification settings, or None. Raises `ConfigError`."""
    methods = [key for key in ("introspection", "jwt") if auth.get(key) is not None]
    if not methods:
        if audiences:
            raise ConfigError(f"{PATH}.audience is of no use without {PATH}.jwt or {PATH}.introspection")
        return None
    path = f"{PATH}.{methods[0]}"
    if len(methods) > 1:
        raise ConfigError(f"{PATH}.introspection and {PATH}.jwt exclude each other: remove one")
    if issuer is None:
        raise ConfigError(f"{path} needs {PATH}.issuer, the authorization server whose tokens are accepted")
    if not audiences and url is None:
        raise ConfigError(
            f"{path} needs {PATH}.url, the gateway's external URL, or {PATH}.audience, the audience of its tokens:"
            " otherwise it would accept tokens for other servers"
        )
    accepted_audiences = audiences or (f"{url}/mcp", cast("str", url))
    return TokenVerificationSettings(
        (_parse_introspection if methods[0] == "introspection" else _parse_jwt)(auth[methods[0]], path),
        issuer,
        accepted_audiences,
    )


def _parse_introspection(value: Any, path: str) -> IntrospectionSettings:
    settings = _require_object(value, path, ("url", "clientId", "clientSecret"))
    client_id, secret = settings.get("clientId"), settings.get("clientSecret")
    if not (isinstance(client_id, str) and client_id and isinstance(secret, str) and secret):
        raise ConfigError(f"{path} needs clientId and clientSecret, the gateway's own credentials there")
    return IntrospectionSettings(_require_secure_url(settings.get("url"), f"{path}.url"), client_id, secret)


def _parse_jwt(value: Any, path: str) -> JwtSettings:
    settings = _require_object(value, path, ("jwksUrl", "algorithms"))
    algorithms = settings.get("algorithms", ALGORITHMS)
    names = [algorithms] if isinstance(algorithms, str) else algorithms
    if not isinstance(names, list | tuple) or not names or not set(cast("list[Any]", names)) <= {*ALGORITHMS}:
        raise ConfigError(f"{path}.algorithms must be some of {', '.join(ALGORITHMS)}")
    return JwtSettings(_require_secure_url(settings.get("jwksUrl"), f"{path}.jwksUrl"), tuple(cast("list[str]", names)))


def _require_object(value: Any, path: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} must be an object with {', '.join(keys)}")
    settings = cast("Mapping[str, Any]", value)
    if unknown := sorted(set(settings) - set(keys)):
        raise ConfigError(f"{path}.{unknown[0]} is not known; {path} has {', '.join(keys)}")
    return settings


def _require_secure_url(value: Any, path: str) -> str:
    try:
        parts = urlsplit(value) if isinstance(value, str) and value.isprintable() else None
        is_url = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_url = None, False
    if parts is None or not is_url or parts.fragment or "@" in parts.netloc:
        raise ConfigError(f"{path} must be a URL such as https://login.example.com/...")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(f"{path} must be https: without TLS, attackers could read or forge tokens")
    return cast("str", value)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is local."""
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
_HASH_PREFIX = "sha256:"
_HEX_DIGITS = frozenset("0123456789abcdef")
_MAX_NAME_CHARACTERS = 200
VERIFIED_PREFIX = "oauth:"
"""The prefix of principal ids from a token verifier; configured user names may not start with it."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits for callers. Times are in seconds, sizes in bytes.

    ``held_bytes`` limits all unfinished messages of one user.
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
    """The users of the gateway. ``tokens`` maps SHA-256 hashes of tokens (64 hexadecimal digits) to user names.

    ``url`` is the external URL without trailing slash, ``origins`` other allowed page origins, ``hosts`` allowed host
    names, ``proxies`` addresses and networks of trusted proxies, ``console`` the raw ``auth.console`` setting, and
    ``token_verification`` the verification of other tokens.
    """

    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    url: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    console: str | Mapping[str, Any] | None = None
    token_verification: TokenVerificationSettings | None = None


def parse_http_settings(auth: Mapping[str, Any]) -> HttpSettings:
    """Parse ``codemode.auth``. Raises `ConfigError`."""
    if unknown := sorted(set(auth) - set(_KEYS)):
        raise ConfigError(f"{_PATH}.{unknown[0]} is not known; {_PATH} has {', '.join(_KEYS)}")
    issuer, url = _parse_url(auth.get("issuer"), "issuer"), _parse_url(auth.get("url"), "url")
    return HttpSettings(
        tokens=_parse_tokens(auth.get("tokens", {})),
        issuer=issuer,
        scopes=_parse_scopes(auth.get("scopes", ())),
        url=url,
        token_verification=parse_token_verification(
            auth, issuer=issuer, url=url, audiences=_parse_texts(auth.get("audience", ()), "audience")
        ),
        origins=tuple(_require_origin(text) for text in _parse_texts(auth.get("origins", ()), "origins")),
        hosts=tuple(_require_host_name(text) for text in _parse_texts(auth.get("hosts", ()), "hosts")),
        proxies=_parse_proxies(_parse_texts(auth.get("proxies", ()), "proxies")),
        console=_parse_console(auth.get("console")),
    )


def compute_token_digest(token: str) -> str:
    """Return the SHA-256 of a token, as 64 hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _parse_tokens(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{_PATH}.tokens must be an object that maps token hashes to users")
    names: dict[str, str] = {}
    for key, user in cast("Mapping[Any, Any]", value).items():
        digest = str(key).lower().removeprefix(_HASH_PREFIX)
        if len(digest) != 64 or not set(digest) <= _HEX_DIGITS:
            # The key may be a token that was not hashed: do not quote it.
            raise ConfigError(
                f'the keys of {_PATH}.tokens must be "sha256:" followed by the SHA-256 of a token in hexadecimal'
            )
        names[digest] = _parse_user_name(user, f"{_PATH}.tokens[{_HASH_PREFIX}{digest[:8]}...]")
    return names


def _parse_user_name(user: Any, path: str) -> str:
    entry: Mapping[str, Any] = cast("Mapping[str, Any]", user) if isinstance(user, Mapping) else {}
    name = entry.get("name")
    if set(entry) != {"name"} or not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
        raise ConfigError(f'{path} must be {{"name": ...}}, a text of at most {_MAX_NAME_CHARACTERS} characters')
    if not name.isprintable() or name != name.strip() or name.startswith(VERIFIED_PREFIX):
        raise ConfigError(
            f"{path}.name must be a visible text that does not begin with {VERIFIED_PREFIX!r}, got {name!r}"
        )
    if name == LOCAL.id:
        raise ConfigError(f"{path}.name: {name!r} is reserved for callers without sign-in; choose another name")
    return name


def _parse_console(value: Any) -> str | Mapping[str, Any] | None:
    if value is None or (isinstance(value, str) and len(value) >= 16):
        return value
    if isinstance(value, Mapping) and value:
        return cast("Mapping[str, Any]", value)
    raise ConfigError(
        f"{_PATH}.console must be a token of at least 16 characters, or an object that maps token hashes to"
        ' users: {"sha256:...": {"name": ..., "tenants": [...]}}'
    )


def _parse_texts(value: Any, key: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in cast("list[Any]", texts)):
        raise ConfigError(f"{_PATH}.{key} must be a list of texts")
    return tuple(cast("list[str]", texts))


def _parse_scopes(value: Any) -> tuple[str, ...]:
    scopes = tuple(scope for text in _parse_texts(value, "scopes") for scope in text.split())
    # Scopes are sent in a quoted header value.
    if not all(text.isascii() and text.isprintable() and not set(text) & set('"\\') for text in scopes):
        raise ConfigError(f"{_PATH}.scopes must be OAuth scopes: ASCII without spaces, quotes and backslashes")
    return scopes


def _parse_url(value: Any, key: str) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value) if isinstance(value, str) and value.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{_PATH}.{key} must be a URL such as https://tools.example.com")
    return cast("str", value).rstrip("/")


def _parse_proxies(networks: tuple[str, ...]) -> tuple[str, ...]:
    try:
        for network in networks:
            ip_network(network)
    except ValueError as error:
        message = f"{_PATH}.proxies must be addresses or networks such as 10.0.0.7 and 10.1.0.0/16: {error}"
        raise ConfigError(message) from error
    return networks


def _require_origin(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or text != f"{parts.scheme}://{parts.netloc}".lower()
    ):
        raise ConfigError(f"{_PATH}.origins must be origins such as https://desk.example.com, got {text!r}")
    return text


def _require_host_name(text: str) -> str:
    if not text or not set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-"):
        raise ConfigError(f"{_PATH}.hosts must be names such as tools.example.com, without a port, got {text!r}")
    return text
