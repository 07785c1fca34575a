"""The keys of the `codemode` section, and the validators of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from codemode.options.checked_fields import HOW_TO_MAKE, is_of_our_documents, is_placeholder

from . import secret_detection
from .config_file import HALF, MistakeError, inside, near, one_of
from .model import APPROVALS, GatewaySettings

Check = Callable[[Any, str], Any]

LONGEST_MS = 7 * 24 * 60 * 60 * 1_000
MAX_TEXT = 64 * 1024
MAX_ITEMS = 4_096


def a_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise MistakeError(path, f"this must be a string, not {kind_of(value)}")
    if len(value) > MAX_TEXT:
        raise MistakeError(path, f"this text is longer than {MAX_TEXT:,} characters")
    if "\0" in value or HALF.search(value):
        raise MistakeError(path, "this text holds a NUL, or half of a character")
    return value


def some_text(value: Any, path: str) -> str:
    if not a_text(value, path).strip():
        raise MistakeError(path, "this must not be empty")
    return value


def a_flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise MistakeError(path, f"this must be true or false, not {kind_of(value)}")
    return value


def a_flag_or_null(value: Any, path: str) -> bool | None:
    return None if value is None else a_flag(value, path)


def a_number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise MistakeError(path, "this must be a number above 0")
    return value


def whole(least: int, most: int) -> Check:
    def check(value: Any, path: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise MistakeError(path, f"this must be a whole number from {least} to {most:,}")
        return value

    return check


def choice(names: tuple[str, ...]) -> Check:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in names:
            # What was written is not repeated: it may be a value that slipped in from another place.
            question = near(value, names) if isinstance(value, str) else ""
            raise MistakeError(path, f"this must be {one_of(names)}{question}")
        return value

    return check


def an_object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MistakeError(path, f"this must be an object, not {kind_of(value)}")
    found = cast("Mapping[Any, Any]", value)
    if len(found) > MAX_ITEMS:
        raise MistakeError(path, f"this has more than {MAX_ITEMS:,} keys")
    if not all(isinstance(key, str) for key in found):
        raise MistakeError(path, "the keys of this must be strings")
    return cast("Mapping[str, Any]", found)


def a_list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise MistakeError(path, f"this must be an array, not {kind_of(value)}")
    found = list(cast("list[Any]", value))
    if len(found) > MAX_ITEMS:
        raise MistakeError(path, f"this has more than {MAX_ITEMS:,} entries")
    return found


def texts(value: Any, path: str) -> tuple[str, ...]:
    """Return the strings of an array; numbers and booleans, which a server gets as text anyhow, as such."""
    return tuple(as_text(one, f"{path}[{index}]") for index, one in enumerate(a_list(value, path)))


def names(value: Any, path: str) -> tuple[str, ...]:
    return tuple(some_text(one, f"{path}[{index}]") for index, one in enumerate(a_list(value, path)))


def as_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else a_text(value, path)


def only(known: Mapping[str, Check], value: Any, path: str) -> dict[str, Any]:
    """Return the object with each of its keys checked. Raises `MistakeError` with the full path of an unknown one."""
    found = an_object(value, path)
    for key in found:
        if key not in known:
            raise MistakeError(inside(path, key), f"there is no such key{near(key, known)}")
    return {key: known[key](one, inside(path, key)) for key, one in found.items()}


def kind_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "an array"


SQLITE = "sqlite:///"
"""How the URL of a store in a file begins."""

_FIELDS = {
    "store": "store",
    "keys": "keys",
    "journal": "journal",
    "auth": "auth",
    "learn": "learn",
    "library": "library",
    "toolName": "tool_name",
    "output": "output",
    "passThrough": "pass_through",
    "limits": "limits",
    "clients": "clients",
    "approvalWaitMs": "approval_wait_ms",
    "maxWaiting": "max_waiting",
}


def settings_of(
    top: Mapping[str, Any], filled_in: set[str], state_folder: Path, at: Callable[[str], Path]
) -> GatewaySettings:
    """Return the settings; ``filled_in`` are secrets that variables brought in, ``at`` gives the path that is meant."""
    fields = {field: top[key] for key, field in _FIELDS.items() if key in top}
    if fields.get("store", "").startswith(SQLITE):  # a client starts the gateway in any folder
        fields["store"] = f"{SQLITE}{at(fields['store'].removeprefix(SQLITE))}"
    auth: Mapping[str, Any] = top.get("auth", {})
    console = auth.get("console")
    asking: Any = auth.get("introspection", {}).get("clientSecret")
    of_auth = [one for one in (console, asking) if isinstance(one, str)]
    secrets = secret_detection.long_enough({*filled_in, *top.get("keys", ()), *of_auth})
    secrets |= secret_detection.of_url(top.get("store", ""))
    return GatewaySettings(**fields, state_folder=state_folder, secrets=tuple(sorted(secrets, key=len, reverse=True)))


_POLICY = choice(APPROVALS)
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
    found = an_object(value, path)
    return {pattern: _POLICY(one, inside(path, pattern)) for pattern, one in found.items()}


def _tools(value: Any, path: str) -> dict[str, Any]:
    return only({"allow": names, "deny": names}, value, path)


def _tool_name(value: Any, path: str) -> str:
    if not _TOOL_NAME.fullmatch(a_text(value, path)):
        raise MistakeError(path, "this must be 1 to 64 letters, digits, dots, hyphens or underscores, or auto")
    return value


def _store(value: Any, path: str) -> str:
    if not some_text(value, path).startswith(_STORES):
        raise MistakeError(path, "this must be a URL: sqlite:///file, or postgresql://user@host/database")
    return value


def _keys(value: Any, path: str) -> tuple[str, ...]:
    found = (some_text(value, path),) if isinstance(value, str) else names(value, path)
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
    found = an_object(value, path)
    return {name: only(CLIENT, one, inside(path, name)) for name, one in found.items()}


def _limits(value: Any, path: str) -> dict[str, Any]:
    # Only a configuration that names limits pays for the import.
    from codemode.surfaces.modules.options import WIRE_NAMES, RunLimits

    found = only(dict.fromkeys(WIRE_NAMES.values(), whole(1, 2**53)), value, path)
    try:
        RunLimits.of(found)
    except ValueError as problem:
        raise MistakeError(path, str(problem)) from None
    return found


def _scopes(value: Any, path: str) -> Any:
    return some_text(value, path) if isinstance(value, str) else names(value, path)


def _token_or_users(value: Any, path: str) -> Any:
    return some_text(value, path) if isinstance(value, str) else an_object(value, path)


_MILLISECONDS = whole(1, LONGEST_MS)

SHARED: Mapping[str, Check] = {
    "approval": _approval,
    "tools": _tools,
    "timeoutMs": _MILLISECONDS,
    "connectTimeoutMs": _MILLISECONDS,
    "maxConcurrency": whole(1, 1_024),
    "maxConcurrencyPerProgram": whole(1, 1_024),
    "idleMs": whole(100, LONGEST_MS),
    "sharing": choice(("user", "session", "shared")),
    "pin": choice(("off", "warn", "block")),
    "outputValidation": choice(("warn", "strict")),
    "approvalWaitMs": whole(0, LONGEST_MS),
    "secrets": names,
}
"""Keys of a server, which the top may say too, for all servers that do not."""

SIGN_IN: Mapping[str, Check] = {
    **dict.fromkeys(("clientId", "clientSecret", "clientName", "clientMetadataUrl", "issuer"), some_text),
    **dict.fromkeys(("redirectUri", "scope"), some_text),
    "scopes": _scopes,
    "flow": choice(("browser", "client_credentials")),
    "grant": choice(("authorization_code", "client_credentials")),
    "callbackPort": whole(0, 65_535),
    "storage": choice(("auto", "keyring", "files")),
}
"""Keys of ``auth`` of a server: how the gateway signs in there."""

DOWNSTREAM: Mapping[str, Check] = {
    "tokens": an_object,
    "console": _token_or_users,
    **dict.fromkeys(("issuer", "url"), some_text),
    **dict.fromkeys(("scopes", "audience", "origins", "hosts", "proxies"), _scopes),
    **dict.fromkeys(("jwt", "introspection"), an_object),
}
"""Keys of ``auth`` at the top: how clients sign in to the gateway over HTTP, which checks what they hold."""

CLIENT: Mapping[str, Check] = {
    "toolName": _tool_name,
    "descriptionCharacters": whole(200, 1_000_000),
    "asks": choice(("declared", "console")),
}
"""Keys of a client under ``clients``, by the name that it gives itself or ``*``."""

SERVER: Mapping[str, Check] = {**SHARED, "auth": lambda value, path: only(SIGN_IN, value, path)}

TOP: Mapping[str, Check] = {
    **SHARED,
    "store": _store,
    "keys": _keys,
    "journal": a_flag_or_null,
    "auth": lambda value, path: only(DOWNSTREAM, value, path),
    "learn": a_flag_or_null,
    "library": a_flag,
    "toolName": _tool_name,
    "output": choice(("both", "structured", "text")),
    "passThrough": a_flag,
    "maxWaiting": whole(1, 1_000_000),
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
