"""Read one entry of `mcpServers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from codemode.trace.unseen import all_seen

from . import codemode_section, config_file, secret_detection
from .config_file import MistakeError, inside
from .model import ConfigError, ServerConfig, Transport
from .places import at
from .substitution import Filling, read_env_file

_TRANSPORTS: Mapping[str, Transport] = {
    **dict.fromkeys(("stdio", "local", "command", "process"), "stdio"),
    **dict.fromkeys(
        ("http", "https", "streamablehttp", "httpstreamable", "httpstream", "streamable", "remote"), "http"
    ),
    **dict.fromkeys(("sse", "httpsse", "ssehttp", "legacysse"), "sse"),
}
_URLS = ("url", "serverUrl", "httpUrl", "server_url", "http_url", "endpoint")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[^=\0]+")
_MAX_ENV_FILE = 256 * 1024


@dataclass(frozen=True)
class Entry:
    """What is being read: the object of one server, its path in the file, where its relative paths start."""

    said: Mapping[str, Any]
    path: str
    folder: Path
    filling: Filling

    def first(self, *keys: str) -> tuple[Any, str]:
        """Return the value of the first of ``keys`` that is there and not null, with its path; else None."""
        found = next((key for key in keys if self.said.get(key) is not None), keys[0])
        return self.said.get(found), inside(self.path, found)

    def text(self, *keys: str) -> str | None:
        value, path = self.first(*keys)
        return None if value is None else self.filling.text(codemode_section.some_text(value, path), path)


def unfolded(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry whose ``command`` is an object, as Zed writes it, with program, arguments and variables apart."""
    command = said.get("command")
    if not isinstance(command, Mapping):
        return said
    inner = cast("Mapping[str, Any]", command)
    program = inner.get("path", inner.get("command"))
    if not isinstance(program, str):
        return said
    more = {key: inner[key] for key in ("args", "env") if key in inner}
    return {**more, **said, "command": program}


def reached(entry: Entry) -> dict[str, Any]:
    """Return how the server is reached, as fields of a `ServerConfig`. Raises `MistakeError`."""
    if entry.said.get("openapi") is not None:
        return {"transport": "openapi", **_api(entry)}
    transport = _transport(entry)
    return {"transport": transport, **(_process(entry) if transport == "stdio" else _remote(entry))}


def _transport(entry: Entry) -> Transport:
    said, path = entry.first("type", "transport", "transportType", "transport_type")
    if isinstance(said, Mapping):
        said, path = codemode_section.an_object(said, path).get("type"), inside(path, "type")
    has_url = any(entry.said.get(key) is not None for key in _URLS)
    has_command = entry.said.get("command") is not None
    if said is not None:
        name = re.sub(r"[-_+/ ]", "", codemode_section.a_text(said, path)).lower()
        if name in _TRANSPORTS:
            return _TRANSPORTS[name]
        if name not in ("custom", "builtin", "platform", "inmemory"):
            reason = "websockets are not supported" if name in ("ws", "wss", "websocket") else "this is no transport"
            raise MistakeError(path, f"{reason}; write stdio, http or sse")
    if has_url and has_command:
        raise MistakeError(entry.path, "this has a command and a url; remove one, or say which counts with type")
    if not has_url and not has_command:
        raise MistakeError(entry.path, "this needs a command (a process on this machine) or a url (a server elsewhere)")
    return "stdio" if has_command else _by_url(entry)


def _by_url(entry: Entry) -> Transport:
    tail = (entry.text(*_URLS) or "").partition("?")[0].rstrip("/")
    return "sse" if tail.endswith("/sse") and "httpUrl" not in entry.said else "http"


def _process(entry: Entry) -> dict[str, Any]:
    command, path = entry.first("command", "cmd")
    if command is None:
        raise MistakeError(entry.path, "a server of type stdio needs a command")
    said = [(command, path)]
    if isinstance(command, list | tuple):
        said = [(one, f"{path}[{index}]") for index, one in enumerate(codemode_section.a_list(command, path))]
        if not said:
            raise MistakeError(path, "this names no command")
    program, *rest = [entry.filling.text(codemode_section.as_text(one, where), where) for one, where in said]
    if not program.strip():
        raise MistakeError(said[0][1], "this names no command")
    args, args_path = entry.first("args", "arguments")
    more = () if args is None else entry.filling.texts(args, args_path)
    return {
        "command": _with_home(entry, program),
        "args": (*rest, *more),
        "env": _env(entry),
        "cwd": _cwd(entry),
        "folder": str(entry.folder),
    }


def _with_home(entry: Entry, program: str) -> str:
    return str(at(entry.folder, program, entry.filling.variables.environ)) if program.startswith("~") else program


def _cwd(entry: Entry) -> str | None:
    written = entry.text("cwd", "workingDirectory", "working_directory")
    return None if written is None else str(at(entry.folder, written, entry.filling.variables.environ))


def _env(entry: Entry) -> dict[str, str]:
    env = {**_forwarded(entry), **_env_file(entry)}
    said, path = entry.first("env", "environment")
    if said is not None:
        env |= entry.filling.table(said, path)
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise MistakeError(inside(path, name), "a variable's name holds no '=', and neither name nor value a NUL")
    return env


def _forwarded(entry: Entry) -> dict[str, str]:
    """Return the variables that Codex is told to hand on from its own environment."""
    said, path = entry.first("env_vars")
    if said is None:
        return {}
    items = [_name_of(one) for one in codemode_section.a_list(said, path)]
    environ = entry.filling.variables.environ
    return {name: environ[name] for name in codemode_section.names(items, path) if name in environ}


def _name_of(said: Any) -> Any:
    return cast("Mapping[str, Any]", said).get("name") if isinstance(said, Mapping) else said


def _env_file(entry: Entry) -> dict[str, str]:
    written, (_, path) = entry.text("envFile", "env_file"), entry.first("envFile", "env_file")
    if written is None:
        return {}
    file = at(entry.folder, written, entry.filling.variables.environ)
    entry.filling.files.add(file)
    try:
        text = config_file.text_of(file, _MAX_ENV_FILE)
    except ConfigError as problem:
        # Its own hint speaks of configurations.
        reason = "there is no such file" if not file.exists() else str(problem).partition(": ")[2]
        raise MistakeError(path, f"{file}: {reason}", lacks_value=not file.exists()) from None
    return read_env_file(text, path, str(file))


def _api(entry: Entry) -> dict[str, Any]:
    """Return where an API's OpenAPI document is and where it is called. Without `baseUrl` it cannot be connected."""
    written, (_, path) = entry.text("openapi") or "", entry.first("openapi")
    if any(entry.said.get(key) is not None for key in (*_URLS, "command")):
        raise MistakeError(path, "an API has openapi and baseUrl, and neither url nor command; remove those")
    is_url = re.match(r"https?://", written, re.IGNORECASE)
    environ = entry.filling.variables.environ
    document = _checked_url(written, path) if is_url else str(at(entry.folder, written, environ))
    base, (_, base_path) = entry.text("baseUrl", "base_url"), entry.first("baseUrl", "base_url")
    include, include_path = entry.first("include")
    patterns = () if include is None else codemode_section.names(include, include_path)
    base_url = None if base is None else _checked_url(base, base_path)
    return {"document": document, "base_url": base_url, "include": tuple(patterns), "headers": _headers(entry)}


def _remote(entry: Entry) -> dict[str, Any]:
    written, (_, path) = entry.text(*_URLS), entry.first(*_URLS)
    if written is None:
        raise MistakeError(entry.path, "a server of this type needs a url")
    return {"url": _checked_url(written, path), "headers": _headers(entry)}


def _checked_url(url: str, path: str) -> str:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or any(one.isspace() or not one.isprintable() for one in url):
        raise MistakeError(path, "this must be a URL that begins with http:// or https:// and names a host")
    return url


def _headers(entry: Entry) -> dict[str, str]:
    found, (said, path) = dict[str, str](), entry.first("headers", "http_headers", "httpHeaders")
    if said is not None:
        found |= entry.filling.table(said, path)
    said, variables_path = entry.first("env_http_headers")
    for name, variable in codemode_section.an_object({} if said is None else said, variables_path).items():
        found[name] = _of_environment(entry, variable, inside(variables_path, name))
    token, token_path = entry.first("bearer_token_env_var")
    if token is not None:
        found["Authorization"] = f"Bearer {_of_environment(entry, token, token_path)}"
    for name, value in found.items():
        if not _HEADER.fullmatch(name):
            raise MistakeError(inside(path, name), "this is no name of a header")
        if not value.isascii() or any(ord(one) < 32 and one != "\t" for one in value):
            raise MistakeError(inside(path, name), "a header cannot carry what is in this; is it a line break?")
        if value != value.strip():
            reason = "a header neither begins nor ends with a space; is a variable in it empty?"
            raise MistakeError(inside(path, name), reason)
    return found


def _of_environment(entry: Entry, name: Any, path: str) -> str:
    return entry.filling.text(f"${{{codemode_section.some_text(name, path)}}}", path)


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
    flags = {
        key: codemode_section.a_flag(said[key], inside(path, key)) for key in ("disabled", "enabled") if key in said
    }
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
    secrets = {*secret_detection.long_enough(entry.filling.secrets), *_secrets(how, auth, named)}
    return ServerConfig(name, **how, **fields, auth=auth, secrets=tuple(sorted(secrets, key=len, reverse=True)))


def _together(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the layers say, the last word for each; but what one of them denies stays denied."""
    found = {key: value for layer in layers for key, value in layer.items()}
    denied = dict.fromkeys(name for layer in layers for name in layer.get("deny", ()))
    return {**found, "deny": tuple(denied)}


def _patterns(said: Mapping[str, Any]) -> list[str]:
    return [one for key in ("tool_approvals", "auto_approve", "allow", "deny") for one in said.get(key, ())]


def _defaults(top: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in top.items() if key in codemode_section.SHARED}


def _own(entry: Entry) -> dict[str, Any]:
    if "codemode" not in entry.said:
        return {}
    path = inside(entry.path, "codemode")
    return codemode_section.only(codemode_section.SERVER, entry.filling.within(entry.said["codemode"], path), path)


def _of_clients(entry: Entry) -> dict[str, Any]:
    """Return what clients' own keys say of limits and of tools; ours, where both are there, count instead."""
    found: dict[str, Any] = {field: names for field, keys in _LISTS.items() if (names := _names(entry, *keys))}
    for field, keys in (("timeout_ms", ("timeout",)), ("connect_timeout_ms", ("initTimeout",))):
        value, path = entry.first(*keys)
        if value is not None:
            found[field] = milliseconds(codemode_section.a_number(value, path), path)
    found |= _of_codex(entry)
    return found


def milliseconds(value: float, path: str) -> int:
    """Return a client's ``timeout`` in milliseconds: some clients count seconds (an hour at most), others these."""
    return _whole(value * 1_000 if value <= _MOST_SECONDS else value, path)


def _whole(value: float, path: str) -> int:
    return codemode_section.whole(1, codemode_section.LONGEST_MS)(round(value) or 1, path)


def _of_codex(entry: Entry) -> dict[str, int]:
    found = dict[str, int]()
    for key, field, factor in (
        ("startup_timeout_ms", "connect_timeout_ms", 1),
        ("startup_timeout_sec", "connect_timeout_ms", 1_000),
        ("tool_timeout_sec", "timeout_ms", 1_000),
    ):
        value, path = entry.first(key)
        if value is not None:
            found[field] = _whole(codemode_section.a_number(value, path) * factor, path)
    return found


def _names(entry: Entry, *keys: str) -> tuple[str, ...]:
    found = list[str]()
    for key in keys:
        value, path = entry.first(key)
        found += () if value is None else codemode_section.names(value, path)
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
    found, filled = dict[str, Any](), codemode_section.an_object(said, path)
    for key, theirs in _SIGN_IN_OF_CLIENTS.items():
        name = next((one for one in theirs if filled.get(one) is not None), None)
        if name is not None:
            at = inside(path, name)
            found[key] = codemode_section.SIGN_IN[key](entry.filling.within(filled[name], at), at)
    return found


_SIGN_IN_OF_CLIENTS = {
    "clientId": ("clientId", "client_id", "CLIENT_ID"),
    "clientSecret": ("clientSecret", "client_secret", "CLIENT_SECRET"),
    "scopes": ("scopes",),
    "callbackPort": ("callbackPort",),
}


def _secrets(how: Mapping[str, Any], auth: Mapping[str, Any], named: tuple[str, ...]) -> set[str]:
    found = secret_detection.of_headers(how.get("headers", {}))
    found |= secret_detection.of_env(how.get("env", {}), named)
    found |= secret_detection.of_args(how.get("args", ()))
    for key in ("url", "document", "base_url"):
        found |= secret_detection.of_url(how.get(key) or "")
    return found | secret_detection.long_enough([auth["clientSecret"]] if "clientSecret" in auth else [])
