"""What a framework's plugin asks: whether the pair takes the place of its tools, and what a model then sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...tools.tool import Tool
from .options import ExecWaitOptions, InvalidConfigError, configured
from .pair import ExecWaitTools, create_exec_wait_tools
from .profile import EXEC, WAIT
from .sources import MCP, ToolSource, entries_of, listed

if TYPE_CHECKING:
    from ...workers.pool import WorkerPool


@dataclass(frozen=True)
class Surface:
    """What a model sees. Active, ``visible`` are exec, wait and the names of ``direct``, and ``pair`` is the pair.

    Inactive, ``visible`` are the names of the tools as they came in, and ``pair`` is None. ``options`` are what the
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
    ``more`` goes to `create_exec_wait_tools`. Raises `InvalidConfigError`, a `ValueError`.
    """
    options = configured(config, agent)
    names = direct_names(direct)
    entries = entries_of(sources)
    has_servers = any(one.source == MCP for one in listed(sources))
    if not options.enabled or not (entries or has_servers):
        shown = dict.fromkeys((*(one.name for one in entries), *names))
        return Surface(active=False, visible=tuple(shown), pair=None, options=options)
    pair = create_exec_wait_tools(_without(sources, names), options, pool=pool, **more)
    pair.show(names)
    return Surface(active=True, visible=(EXEC, WAIT, *names), pair=pair, options=options)


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
