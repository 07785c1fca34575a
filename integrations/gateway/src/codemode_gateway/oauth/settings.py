"""Settings and errors of sign-ins at servers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal

from codemode.data.narrowing import is_sequence
from codemode.errors import CodeModeAuthenticationError

from ..config.codemode_section import SIGN_IN_CHECKS, parse_fields
from ..config.config_file import ConfigFieldError
from ..config.model import ConfigError, ServerConfig
from ..page_urls import is_safe_page_url


class SignInError(CodeModeAuthenticationError):
    """A sign-in failed or is required. The message names the server and the next step."""


class AuthorizationRefusedError(SignInError):
    """The authorization server rejected the credentials; retrying is useless."""


class AuthorizationUnavailableError(SignInError):
    """The authorization server is unreachable or answers invalidly; a retry may succeed."""


Flow = Literal["browser", "client_credentials"]
Storage = Literal["auto", "keyring", "files"]

_URL_KEYS = {"issuer", "redirectUri", "clientMetadataUrl"}


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
        path = f"mcpServers.{server.name}.auth"
        try:
            auth = parse_fields(SIGN_IN_CHECKS, server.auth, path)
        except ConfigFieldError as error:
            raise ConfigError(str(error)) from None
        is_browser = auth.get("flow", auth.get("grant")) != "client_credentials"
        for key in _URL_KEYS & auth.keys():
            if not is_safe_page_url(auth[key]):
                raise ConfigError(f"{path}.{key}: this must be an http(s) URL")
        for key in ("clientId", "clientSecret"):
            if not is_browser and key not in auth:
                raise ConfigError(f"{path}.{key}: this must be given for client_credentials")
        scopes = auth.get("scopes", auth.get("scope"))
        others = {key: value for key, value in auth.items() if key not in ("flow", "grant", "scopes", "scope")}
        return cls(
            flow="browser" if is_browser else "client_credentials",
            scopes=" ".join(scopes) if is_sequence(scopes) else scopes,
            **{re.sub("[A-Z]", r"_\g<0>", key).lower(): value for key, value in others.items()},
        )

    def compute_storage_key(self, server: ServerConfig, principal: str) -> str:
        """Return the storage key of the tokens, unique for each configuration and principal."""
        secret = hashlib.sha256((self.client_secret or "").encode()).hexdigest()
        parts = [principal, server.name, server.url, self.flow, self.client_id, secret, self.scopes, self.issuer]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
