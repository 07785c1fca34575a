"""A server of a configuration as a `ServerConfig`: the client's keys, ours, and what of both is a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codemode.trace.unseen import all_seen

from . import checks, own_keys, secret_rules
from .entries import Entry, reached
from .mistakes import MistakeError, inside
from .values import ServerConfig

_LONGEST_NAME = 128
_MOST_SECONDS = 3_600

_FIELDS = {
    "timeoutMs": "timeout_ms",
    "connectTimeoutMs": "connect_timeout_ms",
    "maxConcurrency": "max_concurrency",
    "maxConcurrencyPerProgram": "max_concurrency_per_program",
    "idleMs": "idle_ms",
    "sharing": "sharing",
    "pin": "pin",
    "outputValidation": "output_validation",
    "approvalWaitMs": "approval_wait_ms",
}


_LISTS = {
    "auto_approve": ("autoApprove", "alwaysAllow", "auto_approve", "always_allow"),
    "allow": ("enabled_tools", "enabledTools", "includeTools", "allowedTools"),
    "deny": ("disabled_tools", "disabledTools", "excludeTools"),
}


def is_turned_off(said: Mapping[str, Any], path: str) -> bool:
    """Return whether the file turns a server off. Raises `MistakeError` where what says so is no boolean."""
    flags = {key: checks.a_flag(said[key], inside(path, key)) for key in ("disabled", "enabled") if key in said}
    return flags.get("disabled", False) or not flags.get("enabled", True)


def server_of(name: str, entry: Entry, top: Mapping[str, Any]) -> ServerConfig:
    """Return the server that ``entry`` says, with the defaults of ``top``, our checked keys. Raises `MistakeError`."""
    if not name.strip() or len(name) > _LONGEST_NAME or not all_seen(name):
        raise MistakeError(entry.path, f"a name of a server has 1 to {_LONGEST_NAME} characters, each of which is seen")
    own = _own(entry)
    how = reached(entry)
    common, theirs, ours = _of_ours(_defaults(top)), _of_clients(entry), _of_ours(own)
    fields = _together(common, theirs, ours)
    if how["transport"] == "openapi":  # by the methods of HTTP it is known what only reads
        fields.setdefault("approval", "writes")
    fields["common_patterns"] = frozenset(_patterns(common)) - {*_patterns(theirs), *_patterns(ours)}
    auth = {**_sign_in(entry), **own.get("auth", {})}
    named = (*top.get("secrets", ()), *own.get("secrets", ()))
    secrets = {*secret_rules.long_enough(entry.filling.secrets), *_secrets(how, auth, named)}
    return ServerConfig(name, **how, **fields, auth=auth, secrets=tuple(sorted(secrets, key=len, reverse=True)))


def _together(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the layers say, the last word for each; but what one of them denies stays denied."""
    found = {key: value for layer in layers for key, value in layer.items()}
    denied = dict.fromkeys(name for layer in layers for name in layer.get("deny", ()))
    return {**found, "deny": tuple(denied)}


def _patterns(said: Mapping[str, Any]) -> list[str]:
    return [one for key in ("tool_approvals", "auto_approve", "allow", "deny") for one in said.get(key, ())]


def _defaults(top: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in top.items() if key in own_keys.SHARED}


def _own(entry: Entry) -> dict[str, Any]:
    if "codemode" not in entry.said:
        return {}
    path = inside(entry.path, "codemode")
    return checks.only(own_keys.SERVER, entry.filling.within(entry.said["codemode"], path), path)


def _of_clients(entry: Entry) -> dict[str, Any]:
    """Return what clients' own keys say of limits and of tools; ours, where both are there, count instead."""
    found: dict[str, Any] = {field: names for field, keys in _LISTS.items() if (names := _names(entry, *keys))}
    for field, keys in (("timeout_ms", ("timeout",)), ("connect_timeout_ms", ("initTimeout",))):
        value, path = entry.first(*keys)
        if value is not None:
            found[field] = milliseconds(checks.a_number(value, path), path)
    found |= _of_codex(entry)
    return found


def milliseconds(value: float, path: str) -> int:
    """Return a client's ``timeout`` in milliseconds: some clients count seconds (an hour at most), others these."""
    return _whole(value * 1_000 if value <= _MOST_SECONDS else value, path)


def _whole(value: float, path: str) -> int:
    return checks.whole(1, checks.LONGEST_MS)(round(value) or 1, path)


def _of_codex(entry: Entry) -> dict[str, int]:
    found = dict[str, int]()
    for key, field, factor in (
        ("startup_timeout_ms", "connect_timeout_ms", 1),
        ("startup_timeout_sec", "connect_timeout_ms", 1_000),
        ("tool_timeout_sec", "timeout_ms", 1_000),
    ):
        value, path = entry.first(key)
        if value is not None:
            found[field] = _whole(checks.a_number(value, path) * factor, path)
    return found


def _names(entry: Entry, *keys: str) -> tuple[str, ...]:
    found = list[str]()
    for key in keys:
        value, path = entry.first(key)
        found += () if value is None else checks.names(value, path)
    return tuple(dict.fromkeys(found))


def _of_ours(said: Mapping[str, Any]) -> dict[str, Any]:
    found = {field: said[key] for key, field in _FIELDS.items() if key in said}
    if "approval" in said:
        policies = dict(said["approval"])
        found["approval"] = policies.pop("*", "declared")
        found["tool_approvals"] = policies
    tools = said.get("tools", {})
    return {**found, **{key: tools[key] for key in ("allow", "deny") if key in tools}}


def _sign_in(entry: Entry) -> dict[str, Any]:
    """Return what clients say of signing in, under our names; the rest of theirs is for them."""
    said, path = entry.first("oauth", "auth")
    if not isinstance(said, Mapping):
        return {}
    found, filled = dict[str, Any](), checks.an_object(said, path)
    for key, theirs in _SIGN_IN_OF_CLIENTS.items():
        name = next((one for one in theirs if filled.get(one) is not None), None)
        if name is not None:
            at = inside(path, name)
            found[key] = own_keys.SIGN_IN[key](entry.filling.within(filled[name], at), at)
    return found


_SIGN_IN_OF_CLIENTS = {
    "clientId": ("clientId", "client_id", "CLIENT_ID"),
    "clientSecret": ("clientSecret", "client_secret", "CLIENT_SECRET"),
    "scopes": ("scopes",),
    "callbackPort": ("callbackPort",),
}


def _secrets(how: Mapping[str, Any], auth: Mapping[str, Any], named: tuple[str, ...]) -> set[str]:
    found = secret_rules.of_headers(how.get("headers", {}))
    found |= secret_rules.of_env(how.get("env", {}), named)
    found |= secret_rules.of_args(how.get("args", ()))
    for key in ("url", "document", "base_url"):
        found |= secret_rules.of_url(how.get(key) or "")
    return found | secret_rules.long_enough([auth["clientSecret"]] if "clientSecret" in auth else [])
