"""Read one entry of `mcpServers` as a `ServerConfig`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from codemode.trace.unseen import has_only_visible_characters

from . import codemode_section, config_file, secret_detection
from .config_file import ConfigFieldError, join_field_path
from .locations import resolve_path
from .model import ConfigError, ServerConfig, Transport
from .substitution import Substitution, parse_env_file

_TRANSPORT_NAMES: Mapping[str, Transport] = {
    **dict.fromkeys(("stdio", "local", "command", "process"), "stdio"),
    **dict.fromkeys(
        ("http", "https", "streamablehttp", "httpstreamable", "httpstream", "streamable", "remote"), "http"
    ),
    **dict.fromkeys(("sse", "httpsse", "ssehttp", "legacysse"), "sse"),
}
CWD_KEYS = ("cwd", "workingDirectory", "working_directory")
ENV_FILE_KEYS = ("envFile", "env_file")
COMMAND_KEYS = ("command", "cmd")
_URL_KEYS = ("url", "serverUrl", "httpUrl", "server_url", "http_url", "endpoint")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE_NAME = re.compile(r"[^=\0]+")
_MAX_ENV_FILE_BYTES = 256 * 1024


@dataclass(frozen=True)
class ServerEntry:
    """The object of one server, its path in the file, and the base of its relative paths."""

    fields: Mapping[str, Any]
    path: str
    folder: Path
    substitution: Substitution

    def get_first_value_and_path(self, *keys: str) -> tuple[Any, str]:
        """Return the value and path of the first of ``keys`` that is present and not null; else None."""
        present_key = next((key for key in keys if self.fields.get(key) is not None), keys[0])
        return self.fields.get(present_key), join_field_path(self.path, present_key)

    def get_substituted_text(self, *keys: str) -> str | None:
        value, path = self.get_first_value_and_path(*keys)
        return (
            None
            if value is None
            else self.substitution.substitute_text(codemode_section.require_non_empty_text(value, path), path)
        )


def flatten_command(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry with Zed's ``command`` object split into command, args and env."""
    command = fields.get("command")
    if not isinstance(command, Mapping):
        return fields
    inner = cast("Mapping[str, Any]", command)
    program = inner.get("path", inner.get("command"))
    if not isinstance(program, str):
        return fields
    inner_fields = {key: inner[key] for key in ("args", "env") if key in inner}
    return {**inner_fields, **fields, "command": program}


def read_connection_fields(entry: ServerEntry) -> dict[str, Any]:
    """Return the connection fields of a `ServerConfig`. Raises `ConfigFieldError`."""
    if entry.fields.get("openapi") is not None:
        return {"transport": "openapi", **_read_openapi_fields(entry)}
    transport = _read_transport(entry)
    return {
        "transport": transport,
        **(_read_stdio_fields(entry) if transport == "stdio" else _read_remote_fields(entry)),
    }


def _read_transport(entry: ServerEntry) -> Transport:
    transport_name, path = entry.get_first_value_and_path("type", "transport", "transportType", "transport_type")
    if isinstance(transport_name, Mapping):
        transport_name, path = (
            codemode_section.require_object(transport_name, path).get("type"),
            join_field_path(path, "type"),
        )
    has_url = any(entry.fields.get(key) is not None for key in _URL_KEYS)
    has_command = entry.fields.get("command") is not None
    if transport_name is not None:
        name = re.sub(r"[-_+/ ]", "", codemode_section.require_text(transport_name, path)).lower()
        if name in _TRANSPORT_NAMES:
            return _TRANSPORT_NAMES[name]
        if name not in ("custom", "builtin", "platform", "inmemory"):
            reason = "websockets are not supported" if name in ("ws", "wss", "websocket") else "this is not a transport"
            raise ConfigFieldError(path, f"{reason}; use stdio, http or sse")
    if has_url and has_command:
        raise ConfigFieldError(entry.path, "this has a command and a url; remove one, or say which counts with type")
    if not has_url and not has_command:
        raise ConfigFieldError(
            entry.path, "this needs a command (a process on this machine) or a url (a server elsewhere)"
        )
    return "stdio" if has_command else _guess_url_transport(entry)


def _guess_url_transport(entry: ServerEntry) -> Transport:
    tail = (entry.get_substituted_text(*_URL_KEYS) or "").partition("?")[0].rstrip("/")
    return "sse" if tail.endswith("/sse") and "httpUrl" not in entry.fields else "http"


def _read_stdio_fields(entry: ServerEntry) -> dict[str, Any]:
    command, path = entry.get_first_value_and_path(*COMMAND_KEYS)
    if command is None:
        raise ConfigFieldError(entry.path, "a server of type stdio needs a command")
    command_parts = [(command, path)]
    if isinstance(command, list | tuple):
        command_parts = [
            (part, f"{path}[{index}]") for index, part in enumerate(codemode_section.require_array(command, path))
        ]
        if not command_parts:
            raise ConfigFieldError(path, "the command is empty")
    program, *first_arguments = [
        entry.substitution.substitute_text(codemode_section.to_text(part, part_path), part_path)
        for part, part_path in command_parts
    ]
    if not program.strip():
        raise ConfigFieldError(command_parts[0][1], "the command is empty")
    args, args_path = entry.get_first_value_and_path("args", "arguments")
    further_arguments = () if args is None else entry.substitution.substitute_texts(args, args_path)
    return {
        "command": _expand_home(entry, program),
        "args": (*first_arguments, *further_arguments),
        "env": _read_env(entry),
        "cwd": _read_cwd(entry),
        "folder": str(entry.folder),
    }


def _expand_home(entry: ServerEntry, program: str) -> str:
    return (
        str(resolve_path(entry.folder, program, entry.substitution.variables.environ))
        if program.startswith("~")
        else program
    )


def _read_cwd(entry: ServerEntry) -> str | None:
    written_path = entry.get_substituted_text(*CWD_KEYS)
    return (
        None
        if written_path is None
        else str(resolve_path(entry.folder, written_path, entry.substitution.variables.environ))
    )


def _read_env(entry: ServerEntry) -> dict[str, str]:
    env = {**_read_forwarded_env(entry), **_read_and_record_env_file(entry)}
    value_map, path = entry.get_first_value_and_path("env", "environment")
    if value_map is not None:
        env |= entry.substitution.substitute_object_without_nulls(value_map, path)
    for name, value in env.items():
        if not _VARIABLE_NAME.fullmatch(name) or "\0" in value:
            raise ConfigFieldError(
                join_field_path(path, name), "a variable's name has no '=', and neither name nor value has a NUL"
            )
    return env


def _read_forwarded_env(entry: ServerEntry) -> dict[str, str]:
    """Return the variables that Codex forwards from its environment."""
    listed, path = entry.get_first_value_and_path("env_vars")
    if listed is None:
        return {}
    items = [_get_variable_name(item) for item in codemode_section.require_array(listed, path)]
    environ = entry.substitution.variables.environ
    return {name: environ[name] for name in codemode_section.require_non_empty_texts(items, path) if name in environ}


def _get_variable_name(item: Any) -> Any:
    return cast("Mapping[str, Any]", item).get("name") if isinstance(item, Mapping) else item


def _read_and_record_env_file(entry: ServerEntry) -> dict[str, str]:
    written_path, (_, path) = (
        entry.get_substituted_text(*ENV_FILE_KEYS),
        entry.get_first_value_and_path(*ENV_FILE_KEYS),
    )
    if written_path is None:
        return {}
    file = resolve_path(entry.folder, written_path, entry.substitution.variables.environ)
    entry.substitution.files.add(file)
    try:
        text = config_file.read_text(file, _MAX_ENV_FILE_BYTES)
    except ConfigError as problem:
        # The hint of `read_text` is about configurations.
        reason = "there is no such file" if not file.exists() else str(problem).partition(": ")[2]
        raise ConfigFieldError(path, f"{file}: {reason}", lacks_value=not file.exists()) from None
    return parse_env_file(text, path, str(file))


def _read_openapi_fields(entry: ServerEntry) -> dict[str, Any]:
    """Return the fields of an OpenAPI server. Without `baseUrl` it cannot be connected."""
    document_location, (_, path) = (
        entry.get_substituted_text("openapi") or "",
        entry.get_first_value_and_path("openapi"),
    )
    if any(entry.fields.get(key) is not None for key in (*_URL_KEYS, "command")):
        raise ConfigFieldError(path, "an API has openapi and baseUrl; remove url and command")
    is_url = re.match(r"https?://", document_location, re.IGNORECASE)
    environ = entry.substitution.variables.environ
    document = (
        _require_http_url(document_location, path)
        if is_url
        else str(resolve_path(entry.folder, document_location, environ))
    )
    base, (_, base_path) = (
        entry.get_substituted_text("baseUrl", "base_url"),
        entry.get_first_value_and_path("baseUrl", "base_url"),
    )
    include, include_path = entry.get_first_value_and_path("include")
    patterns = () if include is None else codemode_section.require_non_empty_texts(include, include_path)
    base_url = None if base is None else _require_http_url(base, base_path)
    return {"document": document, "base_url": base_url, "include": tuple(patterns), "headers": _read_headers(entry)}


def _read_remote_fields(entry: ServerEntry) -> dict[str, Any]:
    url, (_, path) = entry.get_substituted_text(*_URL_KEYS), entry.get_first_value_and_path(*_URL_KEYS)
    if url is None:
        raise ConfigFieldError(entry.path, "a server of this type needs a url")
    return {"url": _require_http_url(url, path), "headers": _read_headers(entry)}


def _require_http_url(url: str, path: str) -> str:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or any(character.isspace() or not character.isprintable() for character in url):
        raise ConfigFieldError(path, "this must be a URL that begins with http:// or https:// and names a host")
    return url


def _read_headers(entry: ServerEntry) -> dict[str, str]:
    headers, (value_map, path) = (
        dict[str, str](),
        entry.get_first_value_and_path("headers", "http_headers", "httpHeaders"),
    )
    if value_map is not None:
        headers |= entry.substitution.substitute_object_without_nulls(value_map, path)
    value_map, variables_path = entry.get_first_value_and_path("env_http_headers")
    for name, variable in codemode_section.require_object(
        {} if value_map is None else value_map, variables_path
    ).items():
        headers[name] = _expand_variable(entry, variable, join_field_path(variables_path, name))
    token, token_path = entry.get_first_value_and_path("bearer_token_env_var")
    if token is not None:
        headers["Authorization"] = f"Bearer {_expand_variable(entry, token, token_path)}"
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigFieldError(join_field_path(path, name), "this is not a header name")
        if not value.isascii() or any(ord(character) < 32 and character != "\t" for character in value):
            raise ConfigFieldError(join_field_path(path, name), "a header cannot have this value; is it a line break?")
        if value != value.strip():
            reason = "a header value cannot start or end with a space; is a variable in it empty?"
            raise ConfigFieldError(join_field_path(path, name), reason)
    return headers


def _expand_variable(entry: ServerEntry, name: Any, path: str) -> str:
    return entry.substitution.substitute_text(f"${{{codemode_section.require_non_empty_text(name, path)}}}", path)


_MAX_NAME_LENGTH = 128
_MAX_TIMEOUT_SECONDS = 3_600

_CONFIG_FIELDS = {
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


_CLIENT_LIST_KEYS = {
    "auto_approve": ("autoApprove", "alwaysAllow", "auto_approve", "always_allow"),
    "allow": ("enabled_tools", "enabledTools", "includeTools", "allowedTools"),
    "deny": ("disabled_tools", "disabledTools", "excludeTools"),
}


def is_server_disabled(fields: Mapping[str, Any], path: str) -> bool:
    """Return whether the file disables a server. Raises `ConfigFieldError` unless the flag is a boolean."""
    flags = {
        key: codemode_section.require_boolean(fields[key], join_field_path(path, key))
        for key in ("disabled", "enabled")
        if key in fields
    }
    return flags.get("disabled", False) or not flags.get("enabled", True)


def create_server_config(name: str, entry: ServerEntry, section: Mapping[str, Any]) -> ServerConfig:
    """Return the server of ``entry``, with defaults of the section ``codemode``. Raises `ConfigFieldError`."""
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not has_only_visible_characters(name):
        raise ConfigFieldError(entry.path, f"a server name has 1 to {_MAX_NAME_LENGTH} visible characters")
    own = _read_codemode_section(entry)
    connection = read_connection_fields(entry)
    common, client_fields, gateway_fields = (
        _to_config_fields(_select_server_defaults(section)),
        _read_client_fields(entry),
        _to_config_fields(own),
    )
    fields = _merge_config_layers(common, client_fields, gateway_fields)
    if connection["transport"] == "openapi":  # the HTTP method says which operations only read
        fields.setdefault("approval", "writes")
    fields["common_patterns"] = frozenset(_list_tool_patterns(common)) - {
        *_list_tool_patterns(client_fields),
        *_list_tool_patterns(gateway_fields),
    }
    auth = {**_read_sign_in_settings(entry), **own.get("auth", {})}
    secret_names = (*section.get("secrets", ()), *own.get("secrets", ()))
    secrets = {
        *secret_detection.drop_short_texts(entry.substitution.secrets),
        *_find_secrets(connection, auth, secret_names),
    }
    return ServerConfig(name, **connection, **fields, auth=auth, secrets=tuple(sorted(secrets, key=len, reverse=True)))


def _merge_config_layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the layers, later ones first; a tool that any layer denies stays denied."""
    merged = {key: value for layer in layers for key, value in layer.items()}
    denied = dict.fromkeys(name for layer in layers for name in layer.get("deny", ()))
    return {**merged, "deny": tuple(denied)}


def _list_tool_patterns(fields: Mapping[str, Any]) -> list[str]:
    return [pattern for key in ("tool_approvals", "auto_approve", "allow", "deny") for pattern in fields.get(key, ())]


def _select_server_defaults(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key in codemode_section.SHARED_CHECKS}


def _read_codemode_section(entry: ServerEntry) -> dict[str, Any]:
    if "codemode" not in entry.fields:
        return {}
    path = join_field_path(entry.path, "codemode")
    return codemode_section.parse_fields(
        codemode_section.SERVER_CHECKS, entry.substitution.substitute_value(entry.fields["codemode"], path), path
    )


def _read_client_fields(entry: ServerEntry) -> dict[str, Any]:
    """Return limits and tool lists from clients' keys. The gateway's keys override them."""
    client_fields: dict[str, Any] = {
        field: name_list
        for field, keys in _CLIENT_LIST_KEYS.items()
        if (name_list := _merge_names_of_keys(entry, *keys))
    }
    for field, keys in (("timeout_ms", ("timeout",)), ("connect_timeout_ms", ("initTimeout",))):
        value, path = entry.get_first_value_and_path(*keys)
        if value is not None:
            client_fields[field] = normalize_client_timeout(codemode_section.require_positive_number(value, path), path)
    client_fields |= _read_codex_timeouts(entry)
    return client_fields


def normalize_client_timeout(value: float, path: str) -> int:
    """Return a client's ``timeout`` in milliseconds. Values up to 3,600 are seconds, as in some clients."""
    return _to_duration_ms(value * 1_000 if value <= _MAX_TIMEOUT_SECONDS else value, path)


def _to_duration_ms(value: float, path: str) -> int:
    return codemode_section.create_integer_check(1, codemode_section.MAX_DURATION_MS)(round(value) or 1, path)


def _read_codex_timeouts(entry: ServerEntry) -> dict[str, int]:
    timeouts = dict[str, int]()
    for key, field, factor in (
        ("startup_timeout_ms", "connect_timeout_ms", 1),
        ("startup_timeout_sec", "connect_timeout_ms", 1_000),
        ("tool_timeout_sec", "timeout_ms", 1_000),
    ):
        value, path = entry.get_first_value_and_path(key)
        if value is not None:
            timeouts[field] = _to_duration_ms(codemode_section.require_positive_number(value, path) * factor, path)
    return timeouts


def _merge_names_of_keys(entry: ServerEntry, *keys: str) -> tuple[str, ...]:
    name_list = list[str]()
    for key in keys:
        value, path = entry.get_first_value_and_path(key)
        name_list += () if value is None else codemode_section.require_non_empty_texts(value, path)
    return tuple(dict.fromkeys(name_list))


def _to_config_fields(section: Mapping[str, Any]) -> dict[str, Any]:
    config_fields = {field: section[key] for key, field in _CONFIG_FIELDS.items() if key in section}
    if "approval" in section:
        policies = dict(section["approval"])
        config_fields["approval"] = policies.pop("*", "declared")
        config_fields["tool_approvals"] = policies
    tools = section.get("tools", {})
    return {**config_fields, **{key: tools[key] for key in ("allow", "deny") if key in tools}}


def _read_sign_in_settings(entry: ServerEntry) -> dict[str, Any]:
    """Return clients' sign-in keys under the gateway's names; other client keys are ignored."""
    auth, path = entry.get_first_value_and_path("oauth", "auth")
    if not isinstance(auth, Mapping):
        return {}
    sign_in, auth_fields = dict[str, Any](), codemode_section.require_object(auth, path)
    for key, client_keys in _CLIENT_SIGN_IN_KEYS.items():
        name = next((client_key for client_key in client_keys if auth_fields.get(client_key) is not None), None)
        if name is not None:
            key_path = join_field_path(path, name)
            sign_in[key] = codemode_section.SIGN_IN_CHECKS[key](
                entry.substitution.substitute_value(auth_fields[name], key_path), key_path
            )
    return sign_in


_CLIENT_SIGN_IN_KEYS = {
    "clientId": ("clientId", "client_id", "CLIENT_ID"),
    "clientSecret": ("clientSecret", "client_secret", "CLIENT_SECRET"),
    "scopes": ("scopes",),
    "callbackPort": ("callbackPort",),
}


def _find_secrets(connection: Mapping[str, Any], auth: Mapping[str, Any], secret_names: tuple[str, ...]) -> set[str]:
    secrets = secret_detection.collect_header_secrets(connection.get("headers", {}))
    secrets |= secret_detection.find_env_secrets(connection.get("env", {}), secret_names)
    secrets |= secret_detection.find_argument_secrets(connection.get("args", ()))
    for key in ("url", "document", "base_url"):
        secrets |= secret_detection.find_url_secrets(connection.get(key) or "")
    return secrets | secret_detection.drop_short_texts([auth["clientSecret"]] if "clientSecret" in auth else [])
