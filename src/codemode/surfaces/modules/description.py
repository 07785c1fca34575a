"""Build and cache the description of `codemode.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...data.rich_values import is_rich, using_rich_values
from ...execution.call_context import RICH_VALUES_RULE
from ...signatures.declarations import extract_first_sentence
from ...signatures.literals import fence_typescript, to_comment_line
from ...trace.visible_text import clip_to_visible_line
from .declarations import declare_server_if_fits
from .module_tools import ListedServer
from .options import WIRE_NAMES, RunOptions
from .server_set import ServerSet

# Some clients and model APIs cut descriptions at 1,024, 2,048 or 4,096 characters: put the essentials first.

_MAX_EXAMPLE_PATH_CHARACTERS = 40
_SENTENCE_CHARACTERS = (100, 60, 30, 0)
_LEFT_OUT_CHARACTERS = 300
_FAILURE_WORDS = 5
_FENCE_CHARACTERS = 40
"""Approximate length of the text around declarations."""

_OPENING_TEXT = """\
Runs one JavaScript or TypeScript ES module in a fresh sandbox; answers {{ result, logs, diagnostics }}. Each server \
is a module, each tool an async function of one argument:

import * as server from "@codemode/servers/{path}";
const found = await server.toolName({{ key: "value" }});
globalThis.__codemode_result__ = {{ found }};

- The result is what `globalThis.__codemode_result__` was last assigned, as JSON; no top-level `return`.
- Look tools up first, in "@codemode/discovery": `await listServers()`; `await searchTools("what it does")` gives \
{{ results: [{{ serverId, exportName, description }}] }}; `(await describeServer(serverId)).declaration` is the \
TypeScript of a server's tools, `(await getTool(serverId, exportName)).declaration` that of one.
- Await every call; `Promise.all` runs several at once. Filter data here; return little."""

_RULES_TEXT = """\
- `limits`, default/most: {limits}. `requestedCapabilities`: serverIds of the list below, to connect; the \
answer has their `declarations`.
- A call gives the tool's structured content, if any; else a single text, never parsed; else the whole \
result {{ content: [...] }}, images and audio in base64.
- A failed call rejects with an error of "@codemode/errors", with `hint`: SchemaValidationError, \
ToolNotFoundError, ServerNotFoundError, ToolCallError, AuthenticationError, SandboxLimitError, all CodemodeError.
- `console` comes back as `logs`. There are URL, TextEncoder, TextDecoder and setTimeout, but no network \
(fetch), setInterval, eval, process or require. Hosts of URLs are ASCII, encodings UTF-8. Integers \
beyond 2^53 are BigInt. Dates and `toLocaleString`: UTC and en-US only."""

_APPROVAL_RULE = "- A call of a tool marked @approval waits for a person: make such calls together, to wait once."
_NO_SERVERS = "There are no servers."


@dataclass(frozen=True)
class RunDescription:
    """A description, and the modules declared in it by server path."""

    text: str
    declarations: Mapping[str, str]


def describe_run_tool(
    servers: Sequence[ListedServer], options: RunOptions, max_characters: int | None = None
) -> RunDescription:
    """Return the description in at most ``max_characters`` characters (None: the option). It is stable."""
    max_characters = max_characters or options.max_description_characters
    text = _format_opening(servers)
    rules = _format_rules(options, servers)
    for part in (rules, _format_server_list(servers, max_characters - len(text) - len(rules) - 4)):
        if len(text) + 2 + len(part) > max_characters:
            return RunDescription(text[:max_characters], {})
        text += f"\n\n{part}"
    declarations_by_path = _select_declarations(servers, max_characters - len(text) - 2 - _FENCE_CHARACTERS)
    subject = "These modules" if len(declarations_by_path) == len(servers) else "Of these modules, some"
    modules = fence_typescript("\n\n".join(declarations_by_path.values()))
    declarations = f"\n\n{subject} in full:\n{modules}"
    if not declarations_by_path or len(text) + len(declarations) > max_characters:
        return RunDescription(text, {})
    return RunDescription(text + declarations, declarations_by_path)


def _format_opening(servers: Sequence[ListedServer]) -> str:
    short_paths = (
        server.path for server in servers if server.tools and len(server.path) <= _MAX_EXAMPLE_PATH_CHARACTERS
    )
    return _OPENING_TEXT.format(path=next(short_paths, "<serverId>"))


def _format_rules(options: RunOptions, servers: Sequence[ListedServer]) -> str:
    defaults, ceilings = options.limits, options.ceilings
    limit_texts = (
        f"{name} {getattr(defaults, option)}/{getattr(ceilings, option)}" for option, name in WIRE_NAMES.items()
    )
    rules = _RULES_TEXT.format(limits=", ".join(limit_texts))
    if any(tool.tool.needs_person for server in servers for tool in server.tools):
        rules += f"\n{_APPROVAL_RULE}"
    return f"{rules}\n{RICH_VALUES_RULE}" if is_rich.get() else rules


def _format_server_list(servers: Sequence[ListedServer], max_characters: int) -> str:
    """Return a line per server, with as much of its description as fits."""
    if not servers:
        return _NO_SERVERS
    for characters in _SENTENCE_CHARACTERS:
        text = "\n".join(["Servers:", *(_format_server_line(server, characters) for server in servers)])
        if len(text) <= max_characters:
            return text
    return _format_some_server_paths(servers, max_characters)


def _format_server_line(server: ListedServer, characters: int) -> str:
    count = len(server.tools)  # 0 for a server that is not listed yet
    tool_count = f"{count} tool{'' if count == 1 else 's'}" if count else ""
    summary = extract_first_sentence(server.description or "", characters) if characters else ""
    if not summary and characters and server.name not in (server.path, server.server_id):
        summary = to_comment_line(server.name, characters)
    missing = f"left out of its list: {'; '.join(server.left_out)}" if server.left_out and characters else ""
    broken = (
        f"cannot be used: {' '.join(server.failure.removeprefix('it ').split()[:_FAILURE_WORDS]).rstrip(':')}"
        if server.failure
        else ""
    )
    about = ". ".join(
        part for part in (broken, tool_count, clip_to_visible_line(missing, _LEFT_OUT_CHARACTERS), summary) if part
    )
    return f"- {server.path}: {about}" if about else f"- {server.path}"


def _format_some_server_paths(servers: Sequence[ListedServer], remaining: int) -> str:
    head = f"There are {len(servers)} servers; `await listServers()` has them all. Some: "
    remaining -= len(head)
    paths: list[str] = []
    for server in servers:
        remaining -= len(server.path) + 2
        if remaining < 0:
            break
        paths.append(server.path)
    return head + ", ".join(paths) if paths else head.removesuffix(" Some: ")


def _select_declarations(servers: Sequence[ListedServer], remaining: int) -> dict[str, str]:
    """Return the modules that fit, by path, in order."""
    declarations: dict[str, str] = {}
    for server in servers:
        module = declare_server_if_fits(server, remaining) if server.tools else None
        if module is not None:
            declarations[server.path] = module
            remaining -= len(module) + 2
    return declarations


class DescriptionCache:
    """Descriptions of one tool, cached by listing and length. Thread-safe."""

    def __init__(self, servers: ServerSet, options: RunOptions, *, has_rich_values: bool) -> None:
        self._has_rich_values = has_rich_values
        self._servers = servers
        self._options = options
        self._cached: tuple[object, dict[int, RunDescription]] | None = None
        self._shortest_read: RunDescription | None = None

    @property
    def has_been_read(self) -> bool:
        """True once a description was read."""
        return self._shortest_read is not None

    @property
    def known_declarations(self) -> Mapping[str, str]:
        """The declarations that every model has read, by server path."""
        return {} if self._shortest_read is None else self._shortest_read.declarations

    def describe_and_record_shortest(self, max_characters: int | None = None) -> RunDescription:
        """Return the description of the servers as last listed.

        If models read different descriptions, only the declarations in the shortest count as known.
        """
        description, shortest_read = self._get_or_build(max_characters), self._shortest_read
        if (
            shortest_read is None
            or shortest_read not in self._get_current_descriptions().values()
            or len(description.text) < len(shortest_read.text)
        ):
            self._shortest_read = description
        return description

    def assume_description_read(self) -> None:
        """Assume that the current description is read, if none was. Call it in a thread."""
        if self._shortest_read is None:
            self._shortest_read = self._get_or_build()

    def _get_or_build(self, max_characters: int | None = None) -> RunDescription:
        descriptions, max_characters = (
            self._get_current_descriptions(),
            max_characters or self._options.max_description_characters,
        )
        with using_rich_values(self._has_rich_values):
            return descriptions.get(max_characters) or descriptions.setdefault(
                max_characters,
                describe_run_tool(self._servers.list_servers_for_description(), self._options, max_characters),
            )

    def _get_current_descriptions(self) -> dict[int, RunDescription]:
        listing, cached = self._servers.get_listing_snapshot(), self._cached
        if cached is None or cached[0] != listing:
            cached = self._cached = (listing, {})
        return cached[1]
