"""What ``auth`` of a server says: who the gateway is there and how it signs in. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from codemode.data.narrowing import is_mapping, is_sequence

from ..config.values import ConfigError, ServerConfig

Flow = Literal["browser", "client_credentials"]
Storage = Literal["auto", "keyring", "files"]

_TEXTS = ("clientId", "clientSecret", "clientName", "clientMetadataUrl", "issuer", "redirectUri", "scope")
_FLOWS = {"browser": "browser", "authorization_code": "browser", "client_credentials": "client_credentials"}
_STORAGES = ("auto", "keyring", "files")
_KEYS = {*_TEXTS, "scopes", "flow", "grant", "callbackPort", "storage"}


@dataclass(frozen=True)
class AuthSettings:
    """How one server is signed in to. ``scopes`` None asks for those that the server names.

    ``issuer`` is the only authorization server that may see ``client_secret``; without it that must be on the host of
    the server itself. ``callback_port`` is where the browser comes back to on this machine, 0 for any.
    """

    flow: Flow = "browser"
    client_id: str | None = None
    client_secret: str | None = None
    client_name: str = "codemode"
    client_metadata_url: str | None = None
    scopes: str | None = None
    issuer: str | None = None
    callback_port: int = 0
    redirect_uri: str | None = None
    storage: Storage = "auto"

    @classmethod
    def of(cls, server: ServerConfig) -> AuthSettings:
        """Read those of a server. Raises `ConfigError` naming the key."""
        said = checked_auth(server.auth, f"mcpServers.{server.name}.auth")
        scopes = said.get("scopes", said.get("scope"))
        return cls(
            flow=cast("Flow", _FLOWS[said.get("flow", said.get("grant", "browser"))]),
            client_id=said.get("clientId"),
            client_secret=said.get("clientSecret"),
            client_name=said.get("clientName", "codemode"),
            client_metadata_url=said.get("clientMetadataUrl"),
            scopes=scopes if scopes is None or isinstance(scopes, str) else " ".join(cast("list[str]", scopes)),
            issuer=said.get("issuer"),
            callback_port=said.get("callbackPort", 0),
            redirect_uri=said.get("redirectUri"),
            storage=said.get("storage", "auto"),
        )

    def key(self, server: ServerConfig, principal: str) -> str:
        """Return the name under which tokens are kept: another configuration or principal has tokens of its own."""
        secret = hashlib.sha256((self.client_secret or "").encode()).hexdigest()
        said = [principal, server.name, server.url, self.flow, self.client_id, secret, self.scopes, self.issuer]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:40]


def checked_auth(auth: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return ``auth`` of a server as it is. Raises `ConfigError` that names the key under ``path``."""

    def check(is_right: object, key: str, wanted: str) -> None:
        if not is_right:
            raise ConfigError(f"{path}.{key}: this must be {wanted}")

    if not is_mapping(auth):
        raise ConfigError(f"{path}: this must be an object")
    for key, value in auth.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}.{key}: there is no such setting; there are {', '.join(sorted(_KEYS))}")
        if key in _TEXTS:
            check(isinstance(value, str) and value, key, "a text")
        elif key == "callbackPort":
            check(type(value) is int and 0 <= value < 1 << 16, key, "a port: a whole number from 0 to 65535")
        elif key == "storage":
            check(value in _STORAGES, key, "auto, keyring or files")
        elif key in ("flow", "grant"):
            check(isinstance(value, str) and value in _FLOWS, key, "browser or client_credentials")
    scopes: Any = auth.get("scopes", [])
    texts: Any = [scopes] if isinstance(scopes, str) else scopes
    check(is_sequence(texts) and all(isinstance(one, str) for one in texts), "scopes", "texts")
    if _FLOWS[auth.get("flow", auth.get("grant", "browser"))] == "client_credentials":
        check(auth.get("clientId"), "clientId", "given for client_credentials")
        check(auth.get("clientSecret"), "clientSecret", "given for client_credentials")
    for key in ("issuer", "redirectUri", "clientMetadataUrl"):
        check(key not in auth or _scheme(auth[key]) in ("http", "https"), key, "an http(s) URL")
    return auth


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""
