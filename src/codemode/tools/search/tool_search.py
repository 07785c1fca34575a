"""Search tools by words, by embeddings, or with a strategy of the host."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from ...data.narrowing import mapping_or_empty
from ...host.threads import LARGE_CHARACTERS, BackgroundThreads, run_in_thread_if_large_or_slow
from ...signatures.described_tool import DescribedTool
from .embeddings import (
    Embed,
    Embeddings,
    HostFunctionError,
    Vector,
    await_or_raise_host_function_error,
    find_nearest_vectors,
    is_async,
)
from .index import ScoredTool, SearchResults, ToolIndex
from .postings import to_named_tool_list
from .query import parse_query
from .tokenizer import MAX_QUERY_CHARACTERS, split_terms

_EMBEDDING_WEIGHT = 0.7
_RANK_WEIGHT = 0.5  # the weight of early positions in both lists
_RANK_HALVES_AT = 10
_SCORE_DIGITS = 6
_ALMOST_ONE = 0.999  # 1 is for an exact name


def fuse_results(
    by_terms: Sequence[ScoredTool], by_embedding: Sequence[tuple[int, float]], limit: int
) -> list[ScoredTool]:
    """Merge two result lists, each in order: at most ``limit`` positions with scores up to 1.

    Word scores and cosines have different scales: each counts relative to the best of its list.
    """
    best_word_score = max((tool.score for tool in by_terms if tool.score < 1), default=0.0) or 1.0
    best_cosine = max((cosine for _, cosine in by_embedding), default=0.0)
    if best_cosine <= 0:
        return list(by_terms[:limit])
    sums: dict[int, float] = {}
    for rank, (position, score) in enumerate(by_terms):
        sums[position] = score / best_word_score + _compute_rank_score(rank)
    for rank, (position, cosine) in enumerate(by_embedding):
        sums[position] = sums.get(position, 0.0) + _EMBEDDING_WEIGHT * (
            max(cosine, 0.0) / best_cosine + _compute_rank_score(rank)
        )
    best_score = min(max(best_cosine, best_word_score if by_terms else 0.0), _ALMOST_ONE)
    scale = best_score / ((1 + _EMBEDDING_WEIGHT) * (1 + _RANK_WEIGHT))
    exact_positions = {tool.position for tool in by_terms if tool.score == 1}
    found = [
        ScoredTool(
            position, 1.0 if position in exact_positions else round(min(total * scale, best_score), _SCORE_DIGITS)
        )
        for position, total in sums.items()
    ]
    return sorted(found, key=lambda tool: (-tool.score, tool.position))[:limit]


def _compute_rank_score(rank: int) -> float:
    return _RANK_WEIGHT * _RANK_HALVES_AT / (_RANK_HALVES_AT + rank)


STRATEGY_SECONDS = 10.0
_TEXT_CHARACTERS = 500
_CANDIDATES_PER_LIST = 50  # of each list, before they are merged
_log = logging.getLogger("codemode.search")

ResultT = TypeVar("ResultT")


class SearchStrategy(Protocol):
    """A search of the host that replaces ours.

    ``search(query, tools, limit)`` gets the searchable tools as mappings with name, description and, if present,
    app_id, source and tags; it returns names, or pairs of name and score from 0 to 1, best first. Sync or async.
    """

    def search(self, query: str, tools: list[dict[str, Any]], limit: int, /) -> Any: ...


class ToolSearch:
    """Searches an immutable set of tools by words, and with the host's additions, whose failures never fail it.

    ``embed`` takes a list of texts and returns a vector of numbers for each; sync, in a thread, or async.
    """

    def __init__(
        self,
        tools: Iterable[tuple[str, DescribedTool]],
        *,
        embed: Embed | None = None,
        strategy: SearchStrategy | None = None,
    ) -> None:
        self._tools = to_named_tool_list(tools)
        self.index = ToolIndex(self._tools)
        self._embeddings = Embeddings(embed) if embed else None
        self._strategy = strategy
        self._logged_reasons: set[str] = set()
        self._texts: dict[bytes, str] | None = None
        self._digests: list[bytes] = []
        self._vectors: list[Vector] | None = None

    def with_tools(self, tools: Iterable[tuple[str, DescribedTool]]) -> ToolSearch:
        """Return a search of these tools; this one stays usable. Unchanged parts are shared."""
        new = ToolSearch(tools, strategy=self._strategy)
        new.index = self.index.with_tools(new._tools)
        new._embeddings = self._embeddings
        new._logged_reasons = self._logged_reasons
        return new

    @property
    def has_used_all_vectors_if_any(self) -> bool:
        """True once a search has used the vectors of all tools, or if there are no embeddings."""
        return self._embeddings is None or self._vectors is not None

    async def build_index(self) -> None:
        """Build the index now, in a thread, instead of at the first search."""
        await _run_in_thread(self.index.build_index)

    async def search_with_warnings(self, query: str, limit: int, among: Collection[int] | None = None) -> SearchResults:
        """Return at most ``limit`` matching tools of the positions ``among``, best first, with warnings."""
        if self._strategy is not None:
            try:
                return SearchResults(await self._search_with_strategy(self._strategy, query, limit, among), ())
            except HostFunctionError as error:
                return await self._search_by_terms(query, limit, among, self._log_and_describe_fallback(error))
        if self._embeddings is None or not parse_query(query).terms:
            return await self._search_by_terms(query, limit, among)
        return await self._search_by_terms_and_embeddings(self._embeddings, query, limit, among)

    async def _search_by_terms(
        self, query: str, limit: int, among: Collection[int] | None, *warnings: str
    ) -> SearchResults:
        found, index_warnings = await _run_in_thread(lambda: self.index.search_with_warnings(query, limit, among))
        return SearchResults(found, (*warnings, *index_warnings))

    async def _search_by_terms_and_embeddings(
        self, embeddings: Embeddings, query: str, limit: int, among: Collection[int] | None
    ) -> SearchResults:
        query_task = asyncio.ensure_future(embeddings.embed_query(query[:MAX_QUERY_CHARACTERS]))
        try:
            if self._texts is None:
                self._digests, self._texts = await _run_in_thread(self._create_embedding_digests_and_texts)
            problem = embeddings.start_embedding_and_get_problem(self._texts) if self._vectors is None else None
            by_terms = await _run_in_thread(lambda: self.index.search(query, max(limit, _CANDIDATES_PER_LIST), among))
            vector = await query_task
        except HostFunctionError as error:
            return await self._search_by_terms(query, limit, among, self._log_and_describe_fallback(error))
        finally:
            query_task.cancel()
        vectors = self._vectors = self._vectors or embeddings.get_vectors_if_complete(self._digests)
        if vectors is None:
            return await self._search_by_terms(
                query, limit, among, *([self._log_and_describe_fallback(HostFunctionError(problem))] if problem else [])
            )
        positions = (
            range(len(vectors)) if among is None else [position for position in among if 0 <= position < len(vectors)]
        )
        by_embedding = await _run_in_thread(
            lambda: find_nearest_vectors(vector, vectors, positions, max(limit, _CANDIDATES_PER_LIST))
        )
        return SearchResults(fuse_results(by_terms, by_embedding, limit), ())

    async def _search_with_strategy(
        self, strategy: SearchStrategy, query: str, limit: int, among: Collection[int] | None
    ) -> list[ScoredTool]:
        infos = await _run_in_thread(lambda: self._create_tool_infos(among))
        positions = {
            name: position for position, (name, _) in enumerate(self._tools) if among is None or position in among
        }
        if is_async(strategy.search):
            search = strategy.search(query, infos, limit)
        else:
            search = BackgroundThreads("codemode-strategy", 1).run(lambda: strategy.search(query, infos, limit))
        result = await await_or_raise_host_function_error(search, "the search strategy", STRATEGY_SECONDS)
        if inspect.isawaitable(result):
            result = await await_or_raise_host_function_error(result, "the search strategy", STRATEGY_SECONDS)
        return _parse_strategy_result(result, positions, limit)

    def _create_tool_infos(self, among: Collection[int] | None) -> list[dict[str, Any]]:
        return [
            _create_tool_info(name, tool)
            for position, (name, tool) in enumerate(self._tools)
            if among is None or position in among
        ]

    def _create_embedding_digests_and_texts(self) -> tuple[list[bytes], dict[bytes, str]]:
        texts = [_create_embedding_text(name, tool) for name, tool in self._tools]
        digests = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        return digests, dict(zip(digests, texts, strict=True))

    def _log_and_describe_fallback(self, error: HostFunctionError) -> str:
        reason = str(error)
        if reason not in self._logged_reasons:
            self._logged_reasons.add(reason)
            _log.warning("tools are searched by words alone: %s", reason, exc_info=error.__cause__)
        return f"These tools were found by words alone: {reason}."


async def _run_in_thread(work: Callable[[], ResultT]) -> ResultT:
    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, work)


def _create_embedding_text(name: str, tool: DescribedTool) -> str:
    from ...signatures.declarations import find_tool_description

    return f"{' '.join(split_terms(name[:_TEXT_CHARACTERS]))}: {find_tool_description(tool)[:_TEXT_CHARACTERS]}"


def _create_tool_info(name: str, tool: DescribedTool) -> dict[str, Any]:
    from ...signatures.declarations import find_tool_description

    codecall_metadata = mapping_or_empty(mapping_or_empty(getattr(tool, "metadata", None)).get("codecall"))
    optional = {
        "app_id": codecall_metadata.get("appId"),
        "source": codecall_metadata.get("source"),
        "tags": codecall_metadata.get("tags"),
    }
    return {
        "name": name,
        "description": find_tool_description(tool),
        **{key: value for key, value in optional.items() if value},
    }


def _parse_strategy_result(result: Any, positions: Mapping[str, int], limit: int) -> list[ScoredTool]:
    """Return the tools that a strategy named. Raises `HostFunctionError` for other results."""
    if not isinstance(result, list | tuple):
        raise HostFunctionError(f"the search strategy gave a {type(result).__name__}, not a list")
    items = cast("Sequence[Any]", result)
    found: dict[int, ScoredTool] = {}
    for rank, item in enumerate(items):
        pair = cast("tuple[Any, ...]", item) if isinstance(item, tuple | list) else (item, 1 - rank / len(items))
        if len(pair) != 2 or not isinstance(pair[0], str) or not _is_score(pair[1]):
            raise HostFunctionError("the search strategy gave something else than names, or names with scores")
        position = positions.get(pair[0])
        if position is not None:
            found.setdefault(position, ScoredTool(position, min(max(float(pair[1]), 0.0), 1.0)))
    return list(found.values())[:limit]


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
