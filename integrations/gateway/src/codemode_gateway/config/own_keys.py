"""The keys of a configuration that are ours, under ``codemode``: which there are, and what each may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from codemode.options.guessable_keys import HOW_TO_MAKE, is_of_our_documents, is_placeholder

from . import checks
from .checks import Check
from .mistakes import MistakeError, inside, near, one_of
from .settings import SQLITE
from .values import APPROVALS

_POLICY = checks.choice(APPROVALS)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STORES = (SQLITE, "postgresql://", "postgres://")
_LEAST_KEY_CHARACTERS = 32
"""Whoever guesses a key approves calls: 128 random bits have 22 characters at least, and as many as this as digits."""


def _approval(value: Any, path: str) -> dict[str, str]:
    """Return policies by pattern, in the order of the file; a single policy is that of ``*``."""
    if isinstance(value, str):
        return {"*": _POLICY(value, path)}
    if not isinstance(value, Mapping):
        raise MistakeError(path, f"this must be {one_of(APPROVALS)}, or an object of them by tools' patterns")
    found = checks.an_object(value, path)
    return {pattern: _POLICY(one, inside(path, pattern)) for pattern, one in found.items()}


def _tools(value: Any, path: str) -> dict[str, Any]:
    return checks.only({"allow": checks.names, "deny": checks.names}, value, path)


def _tool_name(value: Any, path: str) -> str:
    if not _TOOL_NAME.fullmatch(checks.a_text(value, path)):
        raise MistakeError(path, "this must be 1 to 64 letters, digits, dots, hyphens or underscores, or auto")
    return value


def _store(value: Any, path: str) -> str:
    if not checks.some_text(value, path).startswith(_STORES):
        raise MistakeError(path, "this must be a URL: sqlite:///file, or postgresql://user@host/database")
    return value


def _keys(value: Any, path: str) -> tuple[str, ...]:
    found = (checks.some_text(value, path),) if isinstance(value, str) else checks.names(value, path)
    if not found:
        raise MistakeError(path, "this must hold a key; without `keys` the gateway makes one of its own")
    for index, key in enumerate(found):
        # Not how many it has, and nothing of it: it may be in use somewhere.
        where = path if isinstance(value, str) else f"{path}[{index}]"
        if len(key) < _LEAST_KEY_CHARACTERS:
            words = f"a key has at least {_LEAST_KEY_CHARACTERS} characters; make one with {HOW_TO_MAKE}"
            raise MistakeError(where, words)
        said = key.encode("utf-8", "surrogatepass")
        if is_placeholder(said) or is_of_our_documents(said):
            words = f"this stands for a key, and everybody can guess it; make one with {HOW_TO_MAKE}"
            raise MistakeError(where, words)
    return found


def _clients(value: Any, path: str) -> dict[str, dict[str, Any]]:
    found = checks.an_object(value, path)
    return {name: checks.only(CLIENT, one, inside(path, name)) for name, one in found.items()}


def _limits(value: Any, path: str) -> dict[str, Any]:
    # Only a configuration that names limits pays for the import.
    from codemode.surfaces.modules.limits import WIRE_NAMES, RunLimits

    found = checks.only(dict.fromkeys(WIRE_NAMES.values(), checks.whole(1, 2**53)), value, path)
    try:
        RunLimits.of(found)
    except ValueError as problem:
        raise MistakeError(path, str(problem)) from None
    return found


def _scopes(value: Any, path: str) -> Any:
    return checks.some_text(value, path) if isinstance(value, str) else checks.names(value, path)


def _token_or_users(value: Any, path: str) -> Any:
    return checks.some_text(value, path) if isinstance(value, str) else checks.an_object(value, path)


_MILLISECONDS = checks.whole(1, checks.LONGEST_MS)

SHARED: Mapping[str, Check] = {
    "approval": _approval,
    "tools": _tools,
    "timeoutMs": _MILLISECONDS,
    "connectTimeoutMs": _MILLISECONDS,
    "maxConcurrency": checks.whole(1, 1_024),
    "maxConcurrencyPerProgram": checks.whole(1, 1_024),
    "idleMs": checks.whole(100, checks.LONGEST_MS),
    "sharing": checks.choice(("user", "session", "shared")),
    "pin": checks.choice(("off", "warn", "block")),
    "outputValidation": checks.choice(("warn", "strict")),
    "approvalWaitMs": checks.whole(0, checks.LONGEST_MS),
    "secrets": checks.names,
}
"""Keys of a server, which the top may say too, for all servers that do not."""

SIGN_IN: Mapping[str, Check] = {
    **dict.fromkeys(("clientId", "clientSecret", "clientName", "clientMetadataUrl", "issuer"), checks.some_text),
    **dict.fromkeys(("redirectUri", "scope"), checks.some_text),
    "scopes": _scopes,
    "flow": checks.choice(("browser", "client_credentials")),
    "grant": checks.choice(("authorization_code", "client_credentials")),
    "callbackPort": checks.whole(0, 65_535),
    "storage": checks.choice(("auto", "keyring", "files")),
}
"""Keys of ``auth`` of a server: how the gateway signs in there."""

DOWNSTREAM: Mapping[str, Check] = {
    "tokens": checks.an_object,
    "console": _token_or_users,
    **dict.fromkeys(("issuer", "url"), checks.some_text),
    **dict.fromkeys(("scopes", "audience", "origins", "hosts", "proxies"), _scopes),
    **dict.fromkeys(("jwt", "introspection"), checks.an_object),
}
"""Keys of ``auth`` at the top: how clients sign in to the gateway over HTTP, which checks what they hold."""

CLIENT: Mapping[str, Check] = {
    "toolName": _tool_name,
    "descriptionCharacters": checks.whole(200, 1_000_000),
    "asks": checks.choice(("declared", "console")),
}
"""Keys of a client under ``clients``, by the name that it gives itself or ``*``."""

SERVER: Mapping[str, Check] = {**SHARED, "auth": lambda value, path: checks.only(SIGN_IN, value, path)}

TOP: Mapping[str, Check] = {
    **SHARED,
    "store": _store,
    "keys": _keys,
    "journal": checks.a_flag_or_null,
    "auth": lambda value, path: checks.only(DOWNSTREAM, value, path),
    "learn": checks.a_flag_or_null,
    "toolName": _tool_name,
    "output": checks.choice(("both", "structured", "text")),
    "passThrough": checks.a_flag,
    "maxWaiting": checks.whole(1, 1_000_000),
    "limits": _limits,
    "clients": _clients,
}

_BESIDE = ("approval", "approvalWaitMs", "sharing", "pin", "outputValidation", "passThrough", "toolName")
"""Keys of ours that no client has: where one stands outside ``codemode``, somebody believes that it counts."""


def misplaced(said: Mapping[str, Any], place: str) -> list[str]:
    """Return what to tell of keys that are ours and do not stand under ``codemode``."""
    told = [
        f'{inside(place, key)}: this counts under the key "codemode" alone; move it there'
        for key in _BESIDE
        if key in said
    ]
    if "codemode" not in said:
        meant = [key for key, one in said.items() if isinstance(one, Mapping) and near(key, ("codemode",))]
        told += [f"{inside(place, key)}: there is no such key{near(key, ('codemode',))}" for key in meant[:1]]
    return told
