"""The description of `codemode.run` for the model, and what models were shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...data.rich_values import is_rich, using_rich_values
from ...execution.call_context import RICH_VALUES_RULE
from ...signatures.declarations import first_sentence
from ...signatures.literals import comment_line, fenced
from ...trace.visible_text import one_line
from .declarations import fits_in
from .module_tools import ListedServer
from .options import WIRE_NAMES, RunOptions
from .server_set import ServerSet

# Clients and model APIs cut a description at 1,024, 2,048 or 4,096 characters: what stands first stands alone.

_MAX_EXAMPLE_PATH_CHARACTERS = 40
_SENTENCE_CHARACTERS = (100, 60, 30, 0)
_LEFT_OUT_CHARACTERS = 300
_FENCE_CHARACTERS = 40
"""About what stands around declarations."""

_OPENING = """\
Runs one JavaScript or TypeScript ES module in a fresh sandbox; answers {{ result, logs, diagnostics }}. Each server \
is a module, each of its tools an async function of one argument:

import * as server from "@codemode/servers/{path}";
const found = await server.toolName({{ key: "value" }});
globalThis.__codemode_result__ = {{ found }};

- The result is what `globalThis.__codemode_result__` was last assigned, as JSON; no top-level `return`.
- Look tools up first, in "@codemode/discovery": `await listServers()`; `await searchTools("what it does")` gives \
{{ results: [{{ serverId, exportName, description }}] }}; `(await describeServer(serverId)).declaration` is the \
TypeScript of all tools of a server, `(await getTool(serverId, exportName)).declaration` that of one.
- Await every call; `Promise.all` runs several at once. Filter data here; give back little."""

_RULES = """\
- `limits`, default/most: {limits}. `requestedCapabilities`: serverIds of the list below; they are connected, and \
the answer has their `declarations`.
- A call gives the tool's structured content, if any; else a single text as that string, never parsed; else the whole \
result {{ content: [...] }}, images and audio in base64.
- A call that fails rejects with an error of "@codemode/errors", with `hint`: SchemaValidationError, \
ToolNotFoundError, ServerNotFoundError, ToolCallError, AuthenticationError, SandboxLimitError, all CodemodeError.
- `console` comes back as `logs`. There are URL, TextEncoder, TextDecoder and setTimeout, but no network \
(fetch), setInterval, eval, process or require. Hosts of URLs are ASCII, encodings UTF-8. Integers \
beyond 2^53 are BigInt. Dates and `toLocaleString` know UTC and en-US alone: no other time zone, locale or currency."""

_NO_SERVERS = "There are no servers."


@dataclass(frozen=True)
class RunDescription:
    """A description, and the modules that are declared in it, by the paths of their servers."""

    text: str
    declared: Mapping[str, str]


def described(servers: Sequence[ListedServer], options: RunOptions, most: int | None = None) -> RunDescription:
    """Return the description, in at most so many characters, None as the options say: of the same, always the same."""
    most = most or options.max_description_characters
    text = _opening(servers)
    for part in (_rules(options), _listed(servers, most - len(text) - len(_rules(options)) - 4)):
        if len(text) + 2 + len(part) > most:
            return RunDescription(text[:most], {})
        text += f"\n\n{part}"
    shown = _declared(servers, most - len(text) - 2 - _FENCE_CHARACTERS)
    which = "These modules" if len(shown) == len(servers) else "Of these modules, some"
    modules = fenced("\n\n".join(shown.values()))
    declarations = f"\n\n{which} in full:\n{modules}"
    if not shown or len(text) + len(declarations) > most:
        return RunDescription(text, {})
    return RunDescription(text + declarations, shown)


def _opening(servers: Sequence[ListedServer]) -> str:
    short = (one.path for one in servers if one.tools and len(one.path) <= _MAX_EXAMPLE_PATH_CHARACTERS)
    return _OPENING.format(path=next(short, "<serverId>"))


def _rules(options: RunOptions) -> str:
    defaults, ceilings = options.limits, options.ceilings
    said = (f"{name} {getattr(defaults, option)}/{getattr(ceilings, option)}" for option, name in WIRE_NAMES.items())
    rules = _RULES.format(limits=", ".join(said))
    return f"{rules}\n{RICH_VALUES_RULE}" if is_rich.get() else rules


def _listed(servers: Sequence[ListedServer], room: int) -> str:
    """Return a line for each server, with as much of its description as there is room for."""
    if not servers:
        return _NO_SERVERS
    for characters in _SENTENCE_CHARACTERS:
        text = "\n".join(["Servers:", *(_line(one, characters) for one in servers)])
        if len(text) <= room:
            return text
    return _cut(servers, room)


def _line(server: ListedServer, characters: int) -> str:
    count = len(server.tools)  # none of a server that nobody has listed yet
    told = f"{count} tool{'' if count == 1 else 's'}" if count else ""
    said = first_sentence(server.description or "", characters) if characters else ""
    if not said and characters and server.name not in (server.path, server.server_id):
        said = comment_line(server.name, characters)
    missing = f"left out of its list: {'; '.join(server.left_out)}" if server.left_out and characters else ""
    about = ". ".join(part for part in (told, one_line(missing, _LEFT_OUT_CHARACTERS), said) if part)
    return f"- {server.path}: {about}" if about else f"- {server.path}"


def _cut(servers: Sequence[ListedServer], room: int) -> str:
    head = f"There are {len(servers)} servers; `await listServers()` has them all. Some: "
    room -= len(head)
    shown: list[str] = []
    for server in servers:
        room -= len(server.path) + 2
        if room < 0:
            break
        shown.append(server.path)
    return head + ", ".join(shown) if shown else head.removesuffix(" Some: ")


def _declared(servers: Sequence[ListedServer], room: int) -> dict[str, str]:
    """Return the modules that there is room for, by path, in their order."""
    shown: dict[str, str] = {}
    for server in servers:
        module = fits_in(server, room) if server.tools else None
        if module is not None:
            shown[server.path] = module
            room -= len(module) + 2
    return shown


class Descriptions:
    """The descriptions of one tool, each made once for each listing and length. Safe to use from several threads."""

    def __init__(self, servers: ServerSet, options: RunOptions, *, has_rich_values: bool) -> None:
        self._has_rich_values = has_rich_values
        self._servers = servers
        self._options = options
        self._made: tuple[object, dict[int, RunDescription]] | None = None
        self._read: RunDescription | None = None

    @property
    def is_read(self) -> bool:
        """True once somebody has asked for one."""
        return self._read is not None

    @property
    def read_of(self) -> Mapping[str, str]:
        """The modules that a model has read the declarations of, by the paths of their servers."""
        return {} if self._read is None else self._read.declared

    def read(self, most: int | None = None) -> RunDescription:
        """Return what a model reads from now on, of the servers as they were last listed.

        Of models that read different ones, what is known of all is what the shortest declares.
        """
        mine, known = self._description(most), self._read
        if known is None or known not in self._of_now().values() or len(mine.text) < len(known.text):
            self._read = mine
        return mine

    def take_as_read(self) -> None:
        """Have what nobody has asked for be what it would be now. Work for a thread."""
        if self._read is None:
            self._read = self._description()

    def _description(self, most: int | None = None) -> RunDescription:
        made, most = self._of_now(), most or self._options.max_description_characters
        with using_rich_values(self._has_rich_values):
            return made.get(most) or made.setdefault(most, described(self._servers.shown(), self._options, most))

    def _of_now(self) -> dict[int, RunDescription]:
        listed, made = self._servers.listing(), self._made
        if made is None or made[0] != listed:
            made = self._made = (listed, {})
        return made[1]
