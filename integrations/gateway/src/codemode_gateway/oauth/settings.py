"""Settings and errors of sign-ins at servers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from codemode.data.narrowing import is_mapping, is_sequence
from codemode.errors import CodeModeAuthenticationError

from ..config.model import ConfigError, ServerConfig


class SignInError(CodeModeAuthenticationError):
    """A sign-in failed or is required. The message names the server and the next step."""


class AuthorizationRefusedError(SignInError):
    """The authorization server rejected the credentials; retrying is useless."""


class AuthorizationUnavailableError(SignInError):
    """The authorization server is unreachable or answers invalidly; a retry may succeed."""


Flow = Literal["browser", "client_credentials"]
Storage = Literal["auto", "keyring", "files"]

_FLOWS = {"browser": "browser", "authorization_code": "browser", "client_credentials": "client_credentials"}


@dataclass(frozen=True)
class AuthSettings:
    """OAuth settings of one server. ``scopes`` None requests the scopes that the server names.

    ``issuer`` is the only authorization server that may receive ``client_secret``; without it, only the server's own
    host may. ``callback_port`` is the local redirect port, 0 for any.
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
    def from_server(cls, server: ServerConfig) -> AuthSettings:
        """Parse the settings of a server. Raises `ConfigError` with the key."""
        auth = _validate_auth_settings(server.auth, f"mcpServers.{server.name}.auth")
        values = {re.sub("[A-Z]", r"_\g<0>", key).lower(): value for key, value in auth.items()}
        flow, scopes = values.pop("flow", "browser"), values.pop("scope", None)
        flow, scopes = values.pop("grant", flow), values.pop("scopes", scopes)
        if is_sequence(scopes):
            scopes = " ".join(scopes)
        return cls(flow=cast("Flow", _FLOWS[flow]), scopes=scopes, **values)

    def compute_storage_key(self, server: ServerConfig, principal: str) -> str:
        """Return the storage key of the tokens, unique for each configuration and principal."""
        secret = hashlib.sha256((self.client_secret or "").encode()).hexdigest()
        parts = [principal, server.name, server.url, self.flow, self.client_id, secret, self.scopes, self.issuer]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _get_flow(auth: Mapping[str, Any]) -> Flow:
    return cast("Flow", _FLOWS[auth.get("flow", auth.get("grant", "browser"))])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_url(value: Any) -> bool:
    with suppress(ValueError):
        return _is_text(value) and urlsplit(str(value)).scheme in ("http", "https")
    return False


def _is_text_or_texts(value: Any) -> bool:
    return isinstance(value, str) or (is_sequence(value) and all(isinstance(text, str) for text in value))


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("clientId", "clientSecret", "clientName", "scope"), (_is_text, "a text")),
    **dict.fromkeys(("clientMetadataUrl", "issuer", "redirectUri"), (_is_url, "an http(s) URL")),
    **dict.fromkeys(
        ("flow", "grant"), (lambda value: isinstance(value, str) and value in _FLOWS, "browser or client_credentials")
    ),
    "scopes": (_is_text_or_texts, "texts"),
    "callbackPort": (
        lambda value: type(value) is int and 0 <= value < 1 << 16,
        "a port: a whole number from 0 to 65535",
    ),
    "storage": (lambda value: value in ("auto", "keyring", "files"), "auto, keyring or files"),
}


def _validate_auth_settings(auth: Any, path: str) -> Mapping[str, Any]:
    if not is_mapping(auth):
        raise ConfigError(f"{path}: this must be an object")
    for key, value in auth.items():
        if key not in _CHECKS:
            raise ConfigError(f"{path}.{key} is not a setting; the settings are {', '.join(sorted(_CHECKS))}")
        is_valid, expected = _CHECKS[key]
        if not is_valid(value):
            raise ConfigError(f"{path}.{key}: this must be {expected}")
    for key in ("clientId", "clientSecret"):
        if key not in auth and _get_flow(auth) == "client_credentials":
            raise ConfigError(f"{path}.{key}: this must be given for client_credentials")
    return auth
