"""How ``codemode.auth`` says that access tokens of an authorization server are verified, checked. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, cast
from urllib.parse import urlsplit

from ..config.values import ConfigError

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
