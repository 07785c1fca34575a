"""Load the configuration, and watch it for changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from codemode.data.narrowing import list_or_empty, mapping_or_empty

from . import codemode_section, config_file, places
from .codemode_section import settings_of
from .config_file import MistakeError, inside, near, short, text_of
from .model import ConfigError, ConfigProblem, GatewayConfig, GatewaySettings, ServerConfig
from .places import configuration_of, starts_gateway
from .server_entry import Entry, is_turned_off, server_of, unfolded
from .substitution import Filling, Variables

MAX_SERVERS = 1_000

CONTAINERS = ("mcpServers", "servers", "mcp_servers", "mcp.servers", "context_servers")
"""Where clients keep their servers: most of them, VS Code, Codex, VS Code's settings, Zed."""

_HOW = frozenset({"command", "cmd", "url", "serverUrl", "httpUrl"})
"""What tells a server from other objects, each of these says how it is reached."""


def load_config(
    source: str | Path | Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    state_folder: str | Path | None = None,
) -> GatewayConfig:
    """Return the configuration that the file at ``source`` holds, or ``source`` itself where that is a mapping.

    ``environ`` (by default that of the process) and ``inputs`` give variables their values. A mistake of one server is
    a `ConfigProblem` and leaves out that server. Raises `ConfigError` where the file cannot be read, is no JSON with
    comments (or TOML), or our own settings at its top are wrong.
    """
    path = None if isinstance(source, Mapping) else Path(source).absolute()
    said = config_file.object_of(config_file.text_of(path), path) if path else source
    known = os.environ if environ is None else environ
    try:
        whole = codemode_section.an_object(said, "the configuration")
        declared = _declared(whole, "default"), _declared(whole, "description")
        variables = Variables(known, places.workspace_folder(path), inputs or {}, *declared)
        state = Path(state_folder).expanduser() if state_folder else places.state_folder(known)
        return _config(whole, path, variables, state)
    except RecursionError:
        raise ConfigError(f"{path or 'the configuration'}: objects and arrays are nested too deep") from None
    except MistakeError as mistake:
        raise ConfigError(f"{path}: {mistake}" if path else str(mistake)) from None


def _config(whole: Mapping[str, Any], path: Path | None, variables: Variables, state: Path) -> GatewayConfig:
    found, folder = _Found(codemode_section.misplaced(whole, "")), places.base_folder(path)
    top, settings = _top(whole, variables, state, folder)
    for name, place, said in _entries(whole, found.problems):
        filling = Filling(variables)
        try:
            entry = Entry(unfolded(codemode_section.an_object(said, place)), place, folder, filling)
            if is_turned_off(entry.said, place):
                found.disabled.append(name)
            else:
                found.servers.append(_no_circle(server_of(name, entry, top), place, path))
                found.notes += codemode_section.misplaced(entry.said, place)
        except MistakeError as mistake:
            found.problems.append(ConfigProblem(name, mistake.path, mistake.message, mistake.lacks_value))
        found.beside |= filling.files
    if len(found.servers) == 1:  # what is said for all servers is said for this one
        found.servers[0] = replace(found.servers[0], common_patterns=frozenset())
    if not found.servers:
        found.problems.append(_none_left(whole, found))
    told = tuple(found.problems), tuple(found.disabled)
    beside, notes = tuple(sorted(found.beside)), tuple(found.notes)
    return GatewayConfig(tuple(found.servers), settings, *told, path, beside, notes)


def _no_circle(server: ServerConfig, place: str, path: Path | None) -> ServerConfig:
    """Return the server. Raises `MistakeError` for a gateway that would start itself again and again."""
    if starts_gateway(server.command, server.args):
        named = configuration_of(server.args)
        if named is None or (path is not None and Path(server.cwd or ".", named).resolve() == path.resolve()):
            raise MistakeError(place, "this starts the gateway itself; take it out of its own configuration")
    return server


@dataclass
class _Found:
    notes: list[str]
    servers: list[ServerConfig] = field(default_factory=list[ServerConfig])
    problems: list[ConfigProblem] = field(default_factory=list[ConfigProblem])
    disabled: list[str] = field(default_factory=list[str])
    beside: set[Path] = field(default_factory=set[Path])


def _top(
    whole: Mapping[str, Any], variables: Variables, state: Path, folder: Path
) -> tuple[Mapping[str, Any], GatewaySettings]:
    filling = Filling(variables)
    said = filling.within(whole.get("codemode", {}), "codemode")
    top = codemode_section.only(codemode_section.TOP, said, "codemode")
    return top, settings_of(top, filling.secrets, state, lambda text: places.at(folder, text, variables.environ))


def containers_in(whole: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what holds servers in a client's file, with its place: a key of `CONTAINERS`, or one of other clients.

    These are ``mcp`` alone (opencode), where it holds servers, and ``mcpServers`` in another object or behind a dot, as
    in ``amp.mcpServers``.
    """
    for key in CONTAINERS:
        first, _, rest = key.partition(".")
        said = whole.get(key)
        if said is None and rest and isinstance(nested := whole.get(first), Mapping):
            said = cast("Mapping[str, Any]", nested).get(rest)
        if said is not None:
            yield key, said
    for key, said in whole.items():
        if key.endswith(f".{CONTAINERS[0]}") or (key == "mcp" and _holds_servers(said)):
            yield key, said
        elif key != "codemode" and isinstance(nested := mapping_or_empty(said).get(CONTAINERS[0]), Mapping):
            yield f"{key}.{CONTAINERS[0]}", nested


def _holds_servers(said: Any) -> bool:
    return any(not _HOW.isdisjoint(mapping_or_empty(one)) for one in mapping_or_empty(said).values())


def _named(place: str, said: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and object of each server of a container; those of an array have their names in them."""
    if isinstance(said, list) and said:
        for index, one in enumerate(cast("list[Any]", said)):
            path = f"{place}[{index}]"
            name = mapping_or_empty(one).get("name")
            if not isinstance(name, str):
                raise MistakeError(path, 'this needs a name; or write an object: {"mcpServers": {"name": {...}}}')
            yield name, path, one
        return
    for name, one in codemode_section.an_object(said, place).items():
        yield name, inside(place, name), one


def _entries(whole: Mapping[str, Any], problems: list[ConfigProblem]) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and object of each server. A name in two places is used once, and told."""
    seen = dict[str, str]()
    for place, said in containers_in(whole):
        for name, path, one in _named(place, said):
            if name in seen:
                problems.append(ConfigProblem(name, path, f"{seen[name]} has the same name and is used; rename one"))
            elif len(seen) == MAX_SERVERS:
                raise MistakeError(place, f"there are more than {MAX_SERVERS:,} servers")
            else:
                seen[name] = path
                yield name, path, one


def _declared(whole: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return the defaults, or the descriptions, of the inputs that VS Code has a file declare."""
    found = dict[str, str]()
    for one in (whole, mapping_or_empty(whole.get("mcp"))):
        for declared in map(mapping_or_empty, list_or_empty(one.get("inputs"))):
            name, said = declared.get("id"), declared.get(key)
            if isinstance(name, str) and isinstance(said, str):
                found[name] = said
    return found


def _none_left(whole: Mapping[str, Any], found: _Found) -> ConfigProblem:
    place = next((key for key, _ in containers_in(whole)), None)
    if found.problems:
        return ConfigProblem(None, place or CONTAINERS[0], "no server is left; mend those above")
    if found.disabled:
        return ConfigProblem(None, place or CONTAINERS[0], "no server is left: the file turns all of them off")
    if place:
        return ConfigProblem(None, place, "there is no server; add one with `codemode mcp add NAME URL|-- COMMAND...`")
    meant = next((key for key in whole if near(key, CONTAINERS)), None)
    bare = next((key for key, one in whole.items() if not _HOW.isdisjoint(mapping_or_empty(one))), None)
    other = next((key for key, one in whole.items() if _holds_servers(one)), None)
    hint = "add one with `codemode mcp add`"
    if meant:
        hint = f"the file has {short(meant)}{near(meant, CONTAINERS)}"
    elif bare:
        hint = f'{short(bare)} and all other servers belong into it, as in {{"mcpServers": {{{short(bare)}: ...}}}}'
    elif other:
        hint = f"the file has servers under {short(other)}; call that key {CONTAINERS[0]}"
    return ConfigProblem(None, CONTAINERS[0], f"this key is missing, and with it all servers; {hint}")


INTERVAL_SECONDS = 1.0

_LOOKS_UNTIL_SETTLED = 4
"""A file may be written twice within what its file system can tell apart: so often the same is read again."""


def _untold(_problem: ConfigError) -> None: ...


async def watched(
    path: str | Path,
    *,
    since: GatewayConfig | None = None,
    told: Callable[[ConfigError], None] = _untold,
    interval: float = INTERVAL_SECONDS,
    pause: Callable[[], Awaitable[Any]] | None = None,
    **how: Any,
) -> AsyncIterator[GatewayConfig]:
    """Yield the configuration of the file at ``path`` whenever it has come to say something else. Never ends.

    ``since`` is what is known of it; without, what it says at the first look. The file is looked at every ``interval``
    seconds, or whenever what ``pause`` returns is done, and so are the files of variables that it names; ``how`` goes
    to `load_config`. What was written counts once two looks have found the same. A file that is broken or gone is
    ``told``, once, and the old configuration goes on.
    """
    file, rest = _Files(Path(path)), pause or partial(asyncio.sleep, interval)
    known: GatewayConfig | ConfigError | None = since
    text: tuple[str, ...] | None = None
    failure: str | None = None
    if since is None:
        text = await asyncio.to_thread(file.look)
        known = await _loaded(path, how)
        if isinstance(known, ConfigError):
            failure = str(known)
            told(known)
    file.beside(known)
    while True:
        await rest()
        found = await asyncio.to_thread(file.look)
        if found == text or not file.is_calm:
            continue
        text = found
        loaded = await _loaded(path, how)
        if isinstance(loaded, ConfigError):
            if failure != str(loaded):
                failure = str(loaded)
                told(loaded)
            continue
        file.beside(loaded)
        failure = None
        if loaded != known:
            known = loaded
            yield loaded


async def _loaded(path: str | Path, how: dict[str, Any]) -> GatewayConfig | ConfigError:
    try:
        return await asyncio.to_thread(partial(load_config, path, **how))
    except ConfigError as problem:
        return problem


class _Files:
    """The file of a configuration, and those beside it. ``is_calm``: the last two looks have found the same in each."""

    def __init__(self, path: Path) -> None:
        self._own = _File(path)
        self._beside: dict[Path, _File] = {}

    def beside(self, config: GatewayConfig | ConfigError | None) -> None:
        """Look from now on at the files that this configuration names too."""
        if isinstance(config, GatewayConfig):
            self._beside = {path: self._beside.get(path) or _File(path) for path in config.beside}

    @property
    def is_calm(self) -> bool:
        return all(one.is_calm for one in (self._own, *self._beside.values()))

    def look(self) -> tuple[str, ...]:
        return tuple(one.look() for one in (self._own, *self._beside.values()))


class _File:
    """What a file holds at each look. ``is_calm``: the last two looks have found the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: str | None = None
        self._mark: object = None
        self._same_looks = 0
        self.is_calm = False

    def look(self) -> str:
        """Return the content, or, where there is none, why."""
        mark = self._marked()
        self._same_looks = self._same_looks + 1 if mark == self._mark else 0
        self._mark = mark
        if self._content is None or self._same_looks < _LOOKS_UNTIL_SETTLED:
            content = self._read()
            self.is_calm = content == self._content
            self._content = content
        return self._content

    def _marked(self) -> object:
        try:
            found = self._path.stat()
        except OSError as problem:
            return problem.errno
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev

    def _read(self) -> str:
        try:
            return "+" + text_of(self._path)
        except ConfigError as problem:
            return f"-{problem}"
