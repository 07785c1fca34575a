"""What a framework's plugin asks: whether the pair takes the place of its tools, and what a model then sees."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...host.sync import has_running_loop, run_sync
from ...tools.collecting import collect_plain_tools
from ...tools.tool import Tool
from ...trace.failures import log_failure
from .mcp_server import MAX_TOOLS
from .mcp_session import pages
from .mcp_tool import name_of
from .options import ExecWaitOptions, InvalidConfigError, configured
from .pair import ExecWaitTools, create_exec_wait_tools
from .profile import EXEC, WAIT
from .sources import MCP, ToolSource, check_source_name, entries_of, listed

if TYPE_CHECKING:
    from ...workers.pool import WorkerPool


LISTING_SECONDS = 5.0
_log = logging.getLogger("codemode.tools")


@dataclass(frozen=True)
class Surface:
    """What a model sees. Active, ``visible`` are exec, wait and the names of ``direct``, and ``pair`` is the pair.

    Inactive, ``visible`` are the names of the tools as they came in, in that order, those of servers among them, and
    ``pair`` is None. A server that cannot be listed here stands as ``mcp:<owner>``. ``options`` are what the
    configuration said, with defaults.
    """

    active: bool
    visible: tuple[str, ...]
    pair: ExecWaitTools | None
    options: ExecWaitOptions


def plan_surface(
    sources: Any,
    config: Any,
    *,
    agent: Any = None,
    direct: Iterable[Any] = (),
    pool: WorkerPool | None = None,
    **more: Any,
) -> Surface:
    """Return what a model is shown of these tools under this configuration.

    ``config`` is a whole configuration, of which ``tools.codeMode`` is read, or that value, and ``agent`` an agent's
    own, over it. ``direct`` are tools, or names of some, that stay visible beside the pair and are not in its catalog.
    ``more`` goes to `create_exec_wait_tools`. Of an inactive surface the servers are listed, for five seconds each,
    where no event loop runs in this thread: a session belongs to the loop that it was made on.
    Raises `InvalidConfigError`, a `ValueError`.
    """
    options = configured(config, agent)
    names = direct_names(direct)
    given = listed(sources)
    has_tools = any(one.source == MCP for one in given) or bool(entries_of(given))
    if not options.enabled or not has_tools:
        shown = dict.fromkeys((*(name for one in given for name in _names_in(one)), *names))
        return Surface(active=False, visible=tuple(shown), pair=None, options=options)
    pair = create_exec_wait_tools(_without(sources, names), options, pool=pool, **more)
    pair.show(names)
    return Surface(active=True, visible=(EXEC, WAIT, *names), pair=pair, options=options)


def _names_in(source: ToolSource) -> list[str]:
    """Return the names of the tools of a source, in their order."""
    if source.source != MCP:
        return [*collect_plain_tools(source.tools, check_source_name)]
    server = f"{MCP}:{source.owner}"
    if has_running_loop():
        return [server]
    try:
        return run_sync(_listed_names(source.tools))
    except Exception as error:  # noqa: BLE001 - it is host code, and one server costs the others nothing
        log_failure(_log, "the tools of server %r cannot be listed", (source.owner,), error)
        return [server]


async def _listed_names(session: Any) -> list[str]:
    with_names = await asyncio.wait_for(pages(session.list_tools, "tools", most=MAX_TOOLS), LISTING_SECONDS)
    return [name for one in with_names[0] if (name := name_of(one)) is not None]


def direct_names(direct: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the tools, or the names, that stay visible beside the pair. Raises `InvalidConfigError`."""
    if isinstance(direct, str):
        raise InvalidConfigError(f"direct must be a list of names or tools, got {direct!r}")
    names = tuple(dict.fromkeys(_name_of(one) for one in direct))
    if reserved := [one for one in names if one in (EXEC, WAIT)]:
        raise InvalidConfigError(f"direct: a tool called {reserved[0]!r} cannot stand beside the pair")
    return names


def _without(sources: Any, names: Iterable[str]) -> list[ToolSource]:
    """Return the sources without the tools of these names."""
    left_out = frozenset(names)
    grouped: dict[tuple[str, str], dict[str, Tool]] = {}
    for one in entries_of(sources):
        if one.name not in left_out:
            grouped.setdefault((one.source, one.owner), {})[one.name] = one.made
    servers = [one for one in listed(sources) if one.source == MCP]
    return [*(ToolSource(tools, source, owner) for (source, owner), tools in grouped.items()), *servers]


def _name_of(one: Any) -> str:
    name = one if isinstance(one, str) else getattr(one, "name", None) or getattr(one, "__name__", None)
    if not isinstance(name, str) or not name:
        raise InvalidConfigError(f"direct must be names or tools, got {one!r}")
    return name
