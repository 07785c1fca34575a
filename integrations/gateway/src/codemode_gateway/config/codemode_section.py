"""The keys of the section `codemode`, and the checks of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from codemode.options.checked_fields import KEY_COMMAND, is_example_key, is_placeholder_key

from . import secret_detection
from .config_file import SURROGATE_PATTERN, ConfigFieldError, format_choices, format_name_suggestion, join_field_path
from .model import APPROVAL_POLICIES, GatewaySettings

FieldCheck = Callable[[Any, str], Any]

MAX_DURATION_MS = 7 * 24 * 60 * 60 * 1_000
MAX_TEXT_CHARACTERS = 64 * 1024
MAX_ITEMS = 4_096


def require_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ConfigFieldError(path, f"this must be a string, not {describe_type(value)}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise ConfigFieldError(path, f"this text is longer than {MAX_TEXT_CHARACTERS:,} characters")
    if "\0" in value or SURROGATE_PATTERN.search(value):
        raise ConfigFieldError(path, "this text has a NUL or half a surrogate pair")
    return value


def require_non_empty_text(value: Any, path: str) -> str:
    if not require_text(value, path).strip():
        raise ConfigFieldError(path, "this must not be empty")
    return value


def require_boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigFieldError(path, f"this must be true or false, not {describe_type(value)}")
    return value


def require_optional_boolean(value: Any, path: str) -> bool | None:
    return None if value is None else require_boolean(value, path)


def require_positive_number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigFieldError(path, "this must be a number above 0")
    return value


def create_integer_check(minimum: int, maximum: int) -> FieldCheck:
    def check(value: Any, path: str) -> int:
        if type(value) is not int or not minimum <= value <= maximum:
            raise ConfigFieldError(path, f"this must be a whole number from {minimum} to {maximum:,}")
        return value

    return check


def create_choice_check(names: tuple[str, ...]) -> FieldCheck:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in names:
            # Security: the value is not quoted; it may be a secret in the wrong place.
            suggestion = format_name_suggestion(value, names) if isinstance(value, str) else ""
            raise ConfigFieldError(path, f"this must be {format_choices(names)}{suggestion}")
        return value

    return check


def require_object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigFieldError(path, f"this must be an object, not {describe_type(value)}")
    mapping = cast("Mapping[Any, Any]", value)
    if len(mapping) > MAX_ITEMS:
        raise ConfigFieldError(path, f"this has more than {MAX_ITEMS:,} keys")
    if not all(isinstance(key, str) for key in mapping):
        raise ConfigFieldError(path, "the keys of this must be strings")
    return cast("Mapping[str, Any]", mapping)


def require_array(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigFieldError(path, f"this must be an array, not {describe_type(value)}")
    items = list(cast("list[Any]", value))
    if len(items) > MAX_ITEMS:
        raise ConfigFieldError(path, f"this has more than {MAX_ITEMS:,} entries")
    return items


def to_texts(value: Any, path: str) -> tuple[str, ...]:
    """Return the strings of an array, with numbers and booleans as text."""
    return tuple(to_text(item, f"{path}[{index}]") for index, item in enumerate(require_array(value, path)))


def require_non_empty_texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(
        require_non_empty_text(item, f"{path}[{index}]") for index, item in enumerate(require_array(value, path))
    )


def to_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else require_text(value, path)


def parse_fields(checks: Mapping[str, FieldCheck], value: Any, path: str) -> dict[str, Any]:
    """Return the object with all values checked. Raises `ConfigFieldError` with the path of an unknown key."""
    fields = require_object(value, path)
    for key in fields:
        if key not in checks:
            raise ConfigFieldError(
                join_field_path(path, key), f"there is no such key{format_name_suggestion(key, checks)}"
            )
    return {key: checks[key](item, join_field_path(path, key)) for key, item in fields.items()}


def describe_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "an array"


SQLITE_URL_PREFIX = "sqlite:///"
"""The prefix of the URL of a store in a file."""

_SETTINGS_FIELDS = {
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


def create_gateway_settings(
    section: Mapping[str, Any], variable_secrets: set[str], state_folder: Path, resolve_path: Callable[[str], Path]
) -> GatewaySettings:
    """Return the settings. ``variable_secrets`` are secrets from variables; ``resolve_path`` resolves paths."""
    fields = {field: section[key] for key, field in _SETTINGS_FIELDS.items() if key in section}
    if fields.get("store", "").startswith(SQLITE_URL_PREFIX):  # the current folder depends on the client
        fields["store"] = f"{SQLITE_URL_PREFIX}{resolve_path(fields['store'].removeprefix(SQLITE_URL_PREFIX))}"
    auth: Mapping[str, Any] = section.get("auth", {})
    console = auth.get("console")
    introspection_secret: Any = auth.get("introspection", {}).get("clientSecret")
    auth_secrets = [secret for secret in (console, introspection_secret) if isinstance(secret, str)]
    secrets = secret_detection.drop_short_texts({*variable_secrets, *section.get("keys", ()), *auth_secrets})
    secrets |= secret_detection.find_url_secrets(section.get("store", ""))
    return GatewaySettings(**fields, state_folder=state_folder, secrets=tuple(sorted(secrets, key=len, reverse=True)))


_require_policy = create_choice_check(APPROVAL_POLICIES)
_TOOL_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STORE_URL_PREFIXES = (SQLITE_URL_PREFIX, "postgresql://", "postgres://")
_MIN_KEY_CHARACTERS = 32
"""Who guesses a key can approve calls. 128 random bits have 32 hexadecimal digits."""


def _parse_approval_policies(value: Any, path: str) -> dict[str, str]:
    """Return policies by pattern, in file order; a single policy applies to ``*``."""
    if isinstance(value, str):
        return {"*": _require_policy(value, path)}
    if not isinstance(value, Mapping):
        raise ConfigFieldError(
            path, f"this must be {format_choices(APPROVAL_POLICIES)}, or an object with a policy for each tool pattern"
        )
    policies = require_object(value, path)
    return {pattern: _require_policy(policy, join_field_path(path, pattern)) for pattern, policy in policies.items()}


def _parse_tool_patterns(value: Any, path: str) -> dict[str, Any]:
    return parse_fields({"allow": require_non_empty_texts, "deny": require_non_empty_texts}, value, path)


def _require_tool_name(value: Any, path: str) -> str:
    if not _TOOL_NAME_PATTERN.fullmatch(require_text(value, path)):
        raise ConfigFieldError(path, "this must be 1 to 64 letters, digits, dots, hyphens or underscores, or auto")
    return value


def _require_store_url(value: Any, path: str) -> str:
    if not require_non_empty_text(value, path).startswith(_STORE_URL_PREFIXES):
        raise ConfigFieldError(path, "this must be a URL: sqlite:///file, or postgresql://user@host/database")
    return value


def _parse_signing_keys(value: Any, path: str) -> tuple[str, ...]:
    keys = (require_non_empty_text(value, path),) if isinstance(value, str) else require_non_empty_texts(value, path)
    if not keys:
        raise ConfigFieldError(path, "this needs a key; without `keys` the gateway creates one")
    for index, key in enumerate(keys):
        # Security: the message has neither the key nor its length; it may be in use.
        key_path = path if isinstance(value, str) else f"{path}[{index}]"
        if len(key) < _MIN_KEY_CHARACTERS:
            message = f"a key has at least {_MIN_KEY_CHARACTERS} characters; make one with {KEY_COMMAND}"
            raise ConfigFieldError(key_path, message)
        key_bytes = key.encode("utf-8", "surrogatepass")
        if is_placeholder_key(key_bytes) or is_example_key(key_bytes):
            message = f"this is a placeholder that can be guessed; make a key with {KEY_COMMAND}"
            raise ConfigFieldError(key_path, message)
    return keys


def _parse_clients(value: Any, path: str) -> dict[str, dict[str, Any]]:
    clients = require_object(value, path)
    return {name: parse_fields(CLIENT_CHECKS, client, join_field_path(path, name)) for name, client in clients.items()}


def _parse_limits(value: Any, path: str) -> dict[str, Any]:
    # Late import: few configurations have limits.
    from codemode.surfaces.modules.options import WIRE_NAMES, RunLimits

    limits = parse_fields(dict.fromkeys(WIRE_NAMES.values(), create_integer_check(1, 2**53)), value, path)
    try:
        RunLimits.of(limits)
    except ValueError as problem:
        raise ConfigFieldError(path, str(problem)) from None
    return limits


def _require_text_or_texts(value: Any, path: str) -> Any:
    return require_non_empty_text(value, path) if isinstance(value, str) else require_non_empty_texts(value, path)


def _require_token_or_users(value: Any, path: str) -> Any:
    return require_non_empty_text(value, path) if isinstance(value, str) else require_object(value, path)


_check_milliseconds = create_integer_check(1, MAX_DURATION_MS)

SHARED_CHECKS: Mapping[str, FieldCheck] = {
    "approval": _parse_approval_policies,
    "tools": _parse_tool_patterns,
    "timeoutMs": _check_milliseconds,
    "connectTimeoutMs": _check_milliseconds,
    "maxConcurrency": create_integer_check(1, 1_024),
    "maxConcurrencyPerProgram": create_integer_check(1, 1_024),
    "idleMs": create_integer_check(100, MAX_DURATION_MS),
    "sharing": create_choice_check(("user", "session", "shared")),
    "pin": create_choice_check(("off", "warn", "block")),
    "outputValidation": create_choice_check(("warn", "strict")),
    "approvalWaitMs": create_integer_check(0, MAX_DURATION_MS),
    "secrets": require_non_empty_texts,
}
"""Keys of a server that the section may also set, as defaults for all servers."""

SIGN_IN_CHECKS: Mapping[str, FieldCheck] = {
    **dict.fromkeys(("clientId", "clientSecret", "clientName", "clientMetadataUrl", "issuer"), require_non_empty_text),
    **dict.fromkeys(("redirectUri", "scope"), require_non_empty_text),
    "scopes": _require_text_or_texts,
    "flow": create_choice_check(("browser", "client_credentials")),
    "grant": create_choice_check(("authorization_code", "client_credentials")),
    "callbackPort": create_integer_check(0, 65_535),
    "storage": create_choice_check(("auto", "keyring", "files")),
}
"""Keys of ``auth`` of a server: how the gateway signs in to it."""

AUTH_CHECKS: Mapping[str, FieldCheck] = {
    "tokens": require_object,
    "console": _require_token_or_users,
    **dict.fromkeys(("issuer", "url"), require_non_empty_text),
    **dict.fromkeys(("scopes", "audience", "origins", "hosts", "proxies"), _require_text_or_texts),
    **dict.fromkeys(("jwt", "introspection"), require_object),
}
"""Keys of ``auth`` in the section: how clients sign in to the gateway over HTTP."""

CLIENT_CHECKS: Mapping[str, FieldCheck] = {
    "toolName": _require_tool_name,
    "descriptionCharacters": create_integer_check(200, 1_000_000),
    "asks": create_choice_check(("declared", "console")),
}
"""Keys of a client in ``clients``, by the client's name or ``*``."""

SERVER_CHECKS: Mapping[str, FieldCheck] = {
    **SHARED_CHECKS,
    "auth": lambda value, path: parse_fields(SIGN_IN_CHECKS, value, path),
}

SECTION_CHECKS: Mapping[str, FieldCheck] = {
    **SHARED_CHECKS,
    "store": _require_store_url,
    "keys": _parse_signing_keys,
    "journal": require_optional_boolean,
    "auth": lambda value, path: parse_fields(AUTH_CHECKS, value, path),
    "learn": require_optional_boolean,
    "library": require_boolean,
    "toolName": _require_tool_name,
    "output": create_choice_check(("both", "structured", "text")),
    "passThrough": require_boolean,
    "maxWaiting": create_integer_check(1, 1_000_000),
    "limits": _parse_limits,
    "clients": _parse_clients,
}

_SECTION_ONLY_KEYS = ("approval", "approvalWaitMs", "sharing", "pin", "outputValidation", "passThrough", "toolName")
"""Gateway keys that no client has: outside ``codemode`` they have no effect, which is probably a mistake."""


def describe_misplaced_keys(fields: Mapping[str, Any], path: str) -> list[str]:
    """Return warnings about gateway keys outside the section ``codemode``."""
    messages = [
        f'{join_field_path(path, key)}: this only counts in "codemode"; move it there'
        for key in _SECTION_ONLY_KEYS
        if key in fields
    ]
    if "codemode" not in fields:
        similar_keys = [
            key
            for key, item in fields.items()
            if isinstance(item, Mapping) and format_name_suggestion(key, ("codemode",))
        ]
        messages += [
            f"{join_field_path(path, key)}: there is no such key{format_name_suggestion(key, ('codemode',))}"
            for key in similar_keys[:1]
        ]
    return messages
