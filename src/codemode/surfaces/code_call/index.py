"""Which tools are in the index and which are listed: one rule for search, describe, scripts and direct calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...tools.catalog import Catalog
from ...tools.collecting import collect_plain_tools
from ...tools.prepared import PreparedTool, prepared
from ...tools.search.tool_search import ToolSearch
from ...tools.tool import Tool
from ...tools.undeclared import compile_all
from .catalog import CodeCallCatalog
from .known_tool import KnownTool, known_tool
from .metadata import ToolInfo
from .names import begins_with, refuse_confusable
from .options import CodeCallOptions, Search


class ToolSet:
    """An unchanging set of tools under some options. Safe to use from several threads.

    ``catalog`` holds the tools of the index; what is not in it cannot be found, described or called.
    """

    def __init__(self, known: Mapping[str, KnownTool], search: Search, before: ToolSet | None) -> None:
        self.version = 1 if before is None else before.version + 1
        tools = ((name, one.tool) for name, one in known.items() if one.is_indexed)
        # What has not changed is not indexed, or embedded, again.
        self.search: ToolSearch = _search(tools, search) if before is None else before.search.updated(tools)
        self.known = dict(known)
        self.indexed = {name: one for name, one in self.known.items() if one.is_indexed}
        index = Catalog({name: one.tool for name, one in self.indexed.items()})
        self.catalog = CodeCallCatalog(index, self._definition)

    @classmethod
    def of(
        cls, tools: Mapping[str, Any] | Iterable[Any], options: CodeCallOptions, before: ToolSet | None = None
    ) -> ToolSet:
        """Collect tools. Raises `ValueError` for what is wrong with one of them, and for a filter that raises."""
        collected = collect_plain_tools(tools)
        refuse_confusable(collected)
        compile_all((name, prepared(tool)) for name, tool in collected.items())
        old = {} if before is None else before.known
        known = {name: _placed(_known(tool, old.get(name)), options) for name, tool in collected.items()}
        return cls(known, options.search, before)

    def _definition(self, name: str) -> dict[str, Any]:
        return self.indexed[name].definition

    def listed(self) -> Iterator[Tool]:
        """Yield the tools that a client is shown beside the meta-tools, in the order of registration."""
        return (one.made for one in self.known.values() if one.is_listed)


def _search(tools: Iterable[tuple[str, PreparedTool]], options: Search) -> ToolSearch:
    return ToolSearch(tools, embed=options.embed, strategy=options.strategy)


def _known(tool: Tool, before: KnownTool | None) -> KnownTool:
    return before if before is not None and before.made is tool else known_tool(tool)


def _placed(one: KnownTool, options: CodeCallOptions) -> KnownTool:
    if _is_left_out(one.info, options):
        return one.at(is_indexed=False, is_listed=True)
    is_enabled = one.metadata.enabled_in_code_call
    if is_enabled is None:
        is_enabled = options.mode == "codecall_only"
    is_indexed = is_enabled and not begins_with(one.info.name, options.reserved_prefixes)
    return one.at(is_indexed=is_indexed, is_listed=one.metadata.visible_in_list_tools is True)


def _is_left_out(info: ToolInfo, options: CodeCallOptions) -> bool:
    """Tell whether a tool is not CodeCall's: it is listed as if there were none."""
    if options.include_tools is not None and not _included(options.include_tools, info):
        return True
    return options.app_ids is not None and info.app_id not in options.app_ids


def _included(include_tools: Any, info: ToolInfo) -> bool:
    try:
        answer = include_tools(info)
    except Exception as error:
        raise ValueError(f"include_tools raised {type(error).__name__} for tool {info.name!r}: {error}") from error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ValueError("include_tools must be a plain function: it gave an awaitable")
    return bool(answer)
