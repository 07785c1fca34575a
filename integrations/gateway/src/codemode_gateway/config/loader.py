"""Load the configuration file, and watch it for changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from codemode.data.narrowing import list_or_empty, mapping_or_empty

from . import codemode_section, config_file, locations
from .codemode_section import create_gateway_settings
from .config_file import ConfigFieldError, format_name_suggestion, join_field_path, quote_name, read_text
from .locations import get_config_argument, is_gateway_command
from .model import ConfigError, ConfigProblem, GatewayConfig, GatewaySettings, ServerConfig
from .server_entry import ServerEntry, create_server_config, flatten_command, is_server_disabled
from .substitution import Substitution, Variables

MAX_SERVERS = 1_000

SERVER_CONTAINER_KEYS = ("mcpServers", "servers", "mcp_servers", "mcp.servers", "context_servers")
"""Keys of servers in client files: most clients, VS Code, Codex, VS Code's settings, Zed."""

_CONNECTION_KEYS = frozenset({"command", "cmd", "url", "serverUrl", "httpUrl"})
"""Keys that identify an object as a server."""


def load_config(
    source: str | Path | Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    state_folder: str | Path | None = None,
) -> GatewayConfig:
    """Return the configuration in the file at ``source``, or in ``source`` itself if it is a mapping.

    ``environ`` (default: that of the process) and ``inputs`` give variables their values. A mistake in one server is a
    `ConfigProblem` and disables that server. Raises `ConfigError` if the file is unreadable, is neither JSON with
    comments nor TOML, or if the section ``codemode`` is invalid.
    """
    path = None if isinstance(source, Mapping) else Path(source).absolute()
    document = config_file.parse_config_text(config_file.read_text(path), path) if path else source
    variables_source = os.environ if environ is None else environ
    try:
        document = codemode_section.require_object(document, "the configuration")
        declared = _collect_input_texts_by_id(document, "default"), _collect_input_texts_by_id(document, "description")
        variables = Variables(variables_source, locations.get_workspace_folder(path), inputs or {}, *declared)
        state = Path(state_folder).expanduser() if state_folder else locations.state_folder(variables_source)
        return _build_config(document, path, variables, state)
    except RecursionError:
        raise ConfigError(f"{path or 'the configuration'}: objects and arrays are nested too deeply") from None
    except ConfigFieldError as mistake:
        raise ConfigError(f"{path}: {mistake}" if path else str(mistake)) from None


def _build_config(whole: Mapping[str, Any], path: Path | None, variables: Variables, state: Path) -> GatewayConfig:
    result, folder = _LoadResult(codemode_section.describe_misplaced_keys(whole, "")), locations.get_base_folder(path)
    section, settings = _parse_codemode_section(whole, variables, state, folder)
    for name, entry_path, value in _collect_unique_server_entries(whole, result.problems):
        substitution = Substitution(variables)
        try:
            entry = ServerEntry(
                flatten_command(codemode_section.require_object(value, entry_path)), entry_path, folder, substitution
            )
            if is_server_disabled(entry.fields, entry_path):
                result.disabled.append(name)
            else:
                result.servers.append(_reject_self_start(create_server_config(name, entry, section), entry_path, path))
                result.notes += codemode_section.describe_misplaced_keys(entry.fields, entry_path)
        except ConfigFieldError as mistake:
            result.problems.append(ConfigProblem(name, mistake.path, mistake.message, mistake.lacks_value))
        result.extra_files |= substitution.files
    if len(result.servers) == 1:  # common patterns concern this server only
        result.servers[0] = replace(result.servers[0], common_patterns=frozenset())
    if not result.servers:
        result.problems.append(_create_no_servers_problem(whole, result))
    problems_and_disabled = tuple(result.problems), tuple(result.disabled)
    extra_files, notes = tuple(sorted(result.extra_files)), tuple(result.notes)
    return GatewayConfig(tuple(result.servers), settings, *problems_and_disabled, path, extra_files, notes)


def _reject_self_start(server: ServerConfig, entry_path: str, path: Path | None) -> ServerConfig:
    """Return the server. Raises `ConfigFieldError` if the gateway would start itself endlessly."""
    if is_gateway_command(server.command, server.args):
        config_argument = get_config_argument(server.args)
        if config_argument is None or (
            path is not None and Path(server.cwd or ".", config_argument).resolve() == path.resolve()
        ):
            raise ConfigFieldError(
                entry_path, "this starts the gateway itself; remove it from the gateway's configuration"
            )
    return server


@dataclass
class _LoadResult:
    notes: list[str]
    servers: list[ServerConfig] = field(default_factory=list[ServerConfig])
    problems: list[ConfigProblem] = field(default_factory=list[ConfigProblem])
    disabled: list[str] = field(default_factory=list[str])
    extra_files: set[Path] = field(default_factory=set[Path])


def _parse_codemode_section(
    whole: Mapping[str, Any], variables: Variables, state: Path, folder: Path
) -> tuple[Mapping[str, Any], GatewaySettings]:
    substitution = Substitution(variables)
    values = substitution.substitute_value(whole.get("codemode", {}), "codemode")
    section = codemode_section.parse_fields(codemode_section.SECTION_CHECKS, values, "codemode")
    return section, create_gateway_settings(
        section, substitution.secrets, state, lambda text: locations.resolve_path(folder, text, variables.environ)
    )


def find_server_containers(whole: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each object with servers in a client's file.

    The paths are `SERVER_CONTAINER_KEYS`, ``mcp`` with servers directly in it (opencode), and ``mcpServers`` in another
    object or after a dot, as in ``amp.mcpServers``.
    """
    for key in SERVER_CONTAINER_KEYS:
        first, _, nested_key = key.partition(".")
        value = whole.get(key)
        if value is None and nested_key and isinstance(nested := whole.get(first), Mapping):
            value = cast("Mapping[str, Any]", nested).get(nested_key)
        if value is not None:
            yield key, value
    for key, value in whole.items():
        if key.endswith(f".{SERVER_CONTAINER_KEYS[0]}") or (key == "mcp" and _has_servers(value)):
            yield key, value
        elif key != "codemode" and isinstance(nested := mapping_or_empty(value).get(SERVER_CONTAINER_KEYS[0]), Mapping):
            yield f"{key}.{SERVER_CONTAINER_KEYS[0]}", nested


def _has_servers(value: Any) -> bool:
    return any(not _CONNECTION_KEYS.isdisjoint(mapping_or_empty(item)) for item in mapping_or_empty(value).values())


def _list_container_servers(
    container_path: str, container: Any, problems: list[ConfigProblem]
) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and object of each server in a container, which is an object or an array."""
    if isinstance(container, list) and container:
        for index, item in enumerate(cast("list[Any]", container)):
            path = f"{container_path}[{index}]"
            name = mapping_or_empty(item).get("name")
            if isinstance(name, str):
                yield name, path, item
            else:
                hint = 'this needs a name; or write an object: {"mcpServers": {"name": {...}}}'
                problems.append(ConfigProblem(None, path, hint))
        return
    for name, item in codemode_section.require_object(container, container_path).items():
        yield name, join_field_path(container_path, name), item


def _collect_unique_server_entries(
    whole: Mapping[str, Any], problems: list[ConfigProblem]
) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and object of each server. A duplicate name is used once and is a problem."""
    paths_by_name = dict[str, str]()
    for container_path, value in find_server_containers(whole):
        for name, path, item in _list_container_servers(container_path, value, problems):
            if name in paths_by_name:
                problems.append(
                    ConfigProblem(name, path, f"{paths_by_name[name]} has the same name and is used; rename one")
                )
            elif len(paths_by_name) == MAX_SERVERS:
                raise ConfigFieldError(container_path, f"there are more than {MAX_SERVERS:,} servers")
            else:
                paths_by_name[name] = path
                yield name, path, item


def _collect_input_texts_by_id(whole: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return ``key`` (default or description) of each VS Code input that the file declares."""
    texts_by_id = dict[str, str]()
    for source in (whole, mapping_or_empty(whole.get("mcp"))):
        for declaration in map(mapping_or_empty, list_or_empty(source.get("inputs"))):
            name, text = declaration.get("id"), declaration.get(key)
            if isinstance(name, str) and isinstance(text, str):
                texts_by_id[name] = text
    return texts_by_id


def _create_no_servers_problem(whole: Mapping[str, Any], result: _LoadResult) -> ConfigProblem:
    empty_key = next((key for key in SERVER_CONTAINER_KEYS if key in whole), None)
    container_key = next((key for key, _ in find_server_containers(whole)), empty_key)
    if result.problems:
        return ConfigProblem(None, container_key or SERVER_CONTAINER_KEYS[0], "no server is left; fix those above")
    if result.disabled:
        return ConfigProblem(
            None, container_key or SERVER_CONTAINER_KEYS[0], "no server is left: the file disables all of them"
        )
    if container_key:
        return ConfigProblem(
            None, container_key, "there is no server; add one with `codemode mcp add NAME URL|-- COMMAND...`"
        )
    similar_key = next((key for key in whole if format_name_suggestion(key, SERVER_CONTAINER_KEYS)), None)
    server_key = next(
        (key for key, item in whole.items() if not _CONNECTION_KEYS.isdisjoint(mapping_or_empty(item))), None
    )
    other_key = next((key for key, item in whole.items() if _has_servers(item)), None)
    hint = "add one with `codemode mcp add`"
    if similar_key:
        hint = f"the file has {quote_name(similar_key)}{format_name_suggestion(similar_key, SERVER_CONTAINER_KEYS)}"
    elif server_key:
        name = quote_name(server_key)
        hint = f'move {name} and all other servers into it, as in {{"mcpServers": {{{name}: ...}}}}'
    elif other_key:
        hint = f"the file has servers under {quote_name(other_key)}; call that key {SERVER_CONTAINER_KEYS[0]}"
    return ConfigProblem(None, SERVER_CONTAINER_KEYS[0], f"this key, which has the servers, is missing; {hint}")


WATCH_INTERVAL_SECONDS = 1.0

_UNCHANGED_READS_UNTIL_STABLE = 4
"""Unchanged reads before a file counts as stable: file times may not tell two quick writes apart."""


def _ignore_error(_problem: ConfigError) -> None: ...


async def watch_config(
    path: str | Path,
    *,
    since: GatewayConfig | None = None,
    on_error: Callable[[ConfigError], None] = _ignore_error,
    interval: float = WATCH_INTERVAL_SECONDS,
    pause: Callable[[], Awaitable[Any]] | None = None,
    **load_options: Any,
) -> AsyncIterator[GatewayConfig]:
    """Yield the configuration of the file at ``path`` whenever it changes. Never ends.

    ``since`` is the known configuration (default: the file's at the first read). The file, and the files that it names,
    are read every ``interval`` seconds, or after each ``pause()``. ``load_options`` go to `load_config`. A change
    counts once two reads were equal. For a broken or missing file ``on_error`` is called once, and the old
    configuration stays.
    """
    file, wait = _WatchedFiles(Path(path)), pause or partial(asyncio.sleep, interval)
    current: GatewayConfig | ConfigError | None = since
    last_texts: tuple[str, ...] | None = None
    failure: str | None = None
    if since is None:
        last_texts = await asyncio.to_thread(file.poll_contents)
        current = await _load_config_or_error(path, load_options)
        if isinstance(current, ConfigError):
            failure = str(current)
            on_error(current)
    file.set_extra_files(current)
    while True:
        await wait()
        texts = await asyncio.to_thread(file.poll_contents)
        if texts == last_texts or not file.are_stable:
            continue
        last_texts = texts
        loaded = await _load_config_or_error(path, load_options)
        if isinstance(loaded, ConfigError):
            if failure != str(loaded):
                failure = str(loaded)
                on_error(loaded)
            continue
        file.set_extra_files(loaded)
        failure = None
        if loaded != current:
            current = loaded
            yield loaded


async def _load_config_or_error(path: str | Path, load_options: dict[str, Any]) -> GatewayConfig | ConfigError:
    try:
        return await asyncio.to_thread(partial(load_config, path, **load_options))
    except ConfigError as problem:
        return problem


class _WatchedFiles:
    """The configuration file and its extra files. ``are_stable``: the last two reads of each file were equal."""

    def __init__(self, path: Path) -> None:
        self._config_file = _WatchedFile(path)
        self._extra_files: dict[Path, _WatchedFile] = {}

    def set_extra_files(self, config: GatewayConfig | ConfigError | None) -> None:
        """Also watch the files that this configuration names."""
        if isinstance(config, GatewayConfig):
            self._extra_files = {path: self._extra_files.get(path) or _WatchedFile(path) for path in config.extra_files}

    @property
    def are_stable(self) -> bool:
        return all(file.is_stable for file in (self._config_file, *self._extra_files.values()))

    def poll_contents(self) -> tuple[str, ...]:
        return tuple(file.poll_content() for file in (self._config_file, *self._extra_files.values()))


class _WatchedFile:
    """Reads a file repeatedly. ``is_stable``: the last two reads were equal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: str | None = None
        self._file_state: object = None
        self._unchanged_reads = 0
        self.is_stable = False

    def poll_content(self) -> str:
        """Return "+" and the content, or "-" and the reason why it is unreadable."""
        mark = self._get_file_state()
        self._unchanged_reads = self._unchanged_reads + 1 if mark == self._file_state else 0
        self._file_state = mark
        if self._content is None or self._unchanged_reads < _UNCHANGED_READS_UNTIL_STABLE:
            content = self._read_text_or_error()
            self.is_stable = content == self._content
            self._content = content
        return self._content

    def _get_file_state(self) -> object:
        try:
            status = self._path.stat()
        except OSError as problem:
            return problem.errno
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev

    def _read_text_or_error(self) -> str:
        try:
            return "+" + read_text(self._path)
        except ConfigError as problem:
            return f"-{problem}"
