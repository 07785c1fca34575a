"""What ``codecall.search`` answers: the tools of the index that fit, after filters, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...host import steps
from ...host.threads import run_check
from ...signatures.declarations import first_sentence, summary_of
from .index import ToolSet
from .inputs import InputReader
from .known_tool import KnownTool
from .options import MAX_LISTED, CodeCallOptions

_KNOWN = ("query", "topK", "filter", "queries", "appIds", "excludeToolNames", "minRelevanceScore")
_FILTERS = ("appIds", "tags", "includeOpenApi", "includeInline")
_MAX_QUERIES = 10
MAX_QUERY_CHARACTERS = 10_000  # no more is ever read of one
_MAX_SHOWN = 8
_MAX_CHARACTERS = 40
_NOTHING = "No tool fits. Try other words."
_NO_TOOLS = "There is no tool to find here."


@dataclass(frozen=True)
class SearchRequest:
    """What a search asks for. Filters are None where nothing is filtered."""

    queries: tuple[str, ...]
    tells_queries: bool
    top_k: int
    app_ids: frozenset[str] | None
    tags: frozenset[str] | None
    left_out_sources: frozenset[str]
    excluded: frozenset[str]
    least_score: float

    def admits(self, one: KnownTool) -> bool:
        """Tell whether a tool is among those that are searched."""
        info = one.info
        if self.app_ids is not None and info.app_id not in self.app_ids:
            return False
        if self.tags is not None and self.tags.isdisjoint(info.tags):
            return False
        return info.source not in self.left_out_sources and info.name not in self.excluded

    @property
    def narrows(self) -> bool:
        """True when not every tool may be among them."""
        filters = self.app_ids, self.tags
        return any(one is not None for one in filters) or bool(self.left_out_sources or self.excluded)


def read_search(meta_tool: str, given: Any, options: CodeCallOptions) -> SearchRequest:
    """Return what is asked for. Raises `CodeModeToolError` for a wrong input."""
    reader = InputReader(meta_tool, given, _KNOWN)
    filters = reader.within("filter", _FILTERS)
    query, queries = reader.text("query"), reader.texts("queries")
    reader.require("query", "queries")
    if queries is not None and not 0 < len(queries) <= _MAX_QUERIES:
        reader.wrong("queries", f"must be 1 to {_MAX_QUERIES} queries")
    sources = {
        "openapi": filters.flag("includeOpenApi", default=True),
        "inline": filters.flag("includeInline", default=True),
    }
    asked = (*(() if query is None else (query,)), *(queries or ())[:_MAX_QUERIES])
    request = SearchRequest(
        queries=tuple(dict.fromkeys(one[:MAX_QUERY_CHARACTERS] for one in asked)),
        tells_queries=queries is not None,
        top_k=reader.count("topK", options.top_k, MAX_LISTED),
        app_ids=_both(filters.texts("appIds"), reader.texts("appIds")),
        tags=_both(filters.texts("tags"), None),
        left_out_sources=frozenset(name for name, is_included in sources.items() if not is_included),
        excluded=frozenset(reader.texts("excludeToolNames") or ()),
        least_score=reader.number("minRelevanceScore") or 0.0,
    )
    reader.finish()
    return request


def _both(given: Sequence[str] | None, also: Sequence[str] | None) -> frozenset[str] | None:
    # Models write an empty list where they mean none at all.
    if given and also:
        return frozenset(given).intersection(also)
    return frozenset(given or also or ()) or None


async def searched(tools: ToolSet, request: SearchRequest) -> dict[str, Any]:
    """Return the tools that fit, best first, and warnings where something should be known of that."""
    known = list(tools.indexed.values())
    among = await run_check(len(known), partial(_admitted, known, request)) if request.narrows else None
    scores: dict[int, float] = {}
    matched: dict[int, list[str]] = {}
    warnings: dict[str, None] = {}
    has_any = bool(known if among is None else among)
    for query in request.queries if has_any else ():
        found, told = await tools.search.answer(query, request.top_k, among)
        warnings |= dict.fromkeys(told)
        for position, score in found:
            scores[position] = max(score, scores.get(position, 0.0))
            matched.setdefault(position, []).append(query)
    best = sorted(scores, key=lambda position: (-scores[position], position))
    best = [position for position in best if scores[position] >= request.least_score][: request.top_k]
    if not best:
        why = partial(_why_nothing, known, request, among, max(scores.values(), default=None))
        warnings |= dict.fromkeys(await run_check(len(known), why) or ([] if warnings else [_NOTHING]))
    answer: dict[str, Any] = {
        "tools": [
            _told(known[position], scores[position], matched[position] if request.tells_queries else None)
            for position in best
        ],
        "totalAvailableTools": len(known),
    }
    return {**answer, "warnings": list(warnings)} if warnings else answer


def _why_nothing(
    known: list[KnownTool], request: SearchRequest, among: set[int] | None, best: float | None
) -> list[str]:
    """Return what other than the words leaves a list without a tool."""
    if not known:
        return [_NO_TOOLS]
    if best is not None:
        return [f"No tool has the score {request.least_score:g}; the best has {best:.2f}."]
    if among is None:
        return []
    return [f"Filters leave {len(among)} of {len(known)} tools.", *_unknown(known, request)]


def _unknown(known: list[KnownTool], request: SearchRequest) -> list[str]:
    """Return a warning for each filter that names what no tool has."""
    apps = {one.info.app_id: None for one in known if one.info.app_id is not None}
    tags = {tag: None for one in known for tag in one.info.tags}
    said: list[str] = []
    for what, asked, there in (("app", request.app_ids, apps), ("tag", request.tags, tags)):
        if asked and not there.keys() & asked:
            missing = " or ".join(f"{one[:_MAX_CHARACTERS]!r}" for one in sorted(asked)[:_MAX_SHOWN])
            has = f"; there are {', '.join(map(repr, list(there)[:_MAX_SHOWN]))}" if there else ""
            said.append(f"No tool has the {what} {missing}{has}.")
    return said


def _admitted(known: list[KnownTool], request: SearchRequest) -> set[int]:
    steps.take(len(known) >> 4)
    return {at for at, one in enumerate(known) if request.admits(one)}


def _told(one: KnownTool, score: float, matched: list[str] | None) -> dict[str, Any]:
    said: dict[str, Any] = {"name": one.info.name, "description": first_sentence(summary_of(one.tool))}
    if one.info.app_id is not None:
        said["appId"] = one.info.app_id
    if one.info.source is not None:
        said["source"] = one.info.source
    said["score"] = score
    return said if matched is None else {**said, "matchedQueries": matched}
