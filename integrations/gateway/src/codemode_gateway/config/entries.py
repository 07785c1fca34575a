"""One server as clients write it, in all their spellings: how it is reached, and with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from . import checks, files
from .env_files import read_env_file
from .filling import Filling
from .mistakes import MistakeError, inside
from .places import at
from .values import ConfigError, Transport

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
        return None if value is None else self.filling.text(checks.some_text(value, path), path)


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
        said, path = checks.an_object(said, path).get("type"), inside(path, "type")
    has_url = any(entry.said.get(key) is not None for key in _URLS)
    has_command = entry.said.get("command") is not None
    if said is not None:
        name = re.sub(r"[-_+/ ]", "", checks.a_text(said, path)).lower()
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
        said = [(one, f"{path}[{index}]") for index, one in enumerate(checks.a_list(command, path))]
        if not said:
            raise MistakeError(path, "this names no command")
    program, *rest = [entry.filling.text(checks.as_text(one, where), where) for one, where in said]
    if not program.strip():
        raise MistakeError(said[0][1], "this names no command")
    args, args_path = entry.first("args", "arguments")
    more = () if args is None else entry.filling.texts(args, args_path)
    return {"command": _with_home(entry, program), "args": (*rest, *more), "env": _env(entry), "cwd": _cwd(entry)}


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
    items = [_name_of(one) for one in checks.a_list(said, path)]
    environ = entry.filling.variables.environ
    return {name: environ[name] for name in checks.names(items, path) if name in environ}


def _name_of(said: Any) -> Any:
    return cast("Mapping[str, Any]", said).get("name") if isinstance(said, Mapping) else said


def _env_file(entry: Entry) -> dict[str, str]:
    written, (_, path) = entry.text("envFile", "env_file"), entry.first("envFile", "env_file")
    if written is None:
        return {}
    file = at(entry.folder, written, entry.filling.variables.environ)
    entry.filling.files.add(file)
    try:
        text = files.text_of(file, _MAX_ENV_FILE)
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
    document = (
        _checked_url(written, path) if is_url else str(at(entry.folder, written, entry.filling.variables.environ))
    )
    base, (_, base_path) = entry.text("baseUrl", "base_url"), entry.first("baseUrl", "base_url")
    include, include_path = entry.first("include")
    patterns = () if include is None else checks.names(include, include_path)
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
    for name, variable in checks.an_object({} if said is None else said, variables_path).items():
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
    return entry.filling.text(f"${{{checks.some_text(name, path)}}}", path)
