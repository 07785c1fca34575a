"""Search a set of tools by words, by meaning, or by a function of the host."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from ...data.narrowing import mapping_or_empty
from ...host.threads import LARGE_CHARACTERS, Errands, run_check
from ...signatures.described_tool import DescribedTool
from .embeddings import Embed, Embeddings, Unusable, Vector, bounded, is_async, nearest
from .index import Answer, Found, ToolIndex
from .postings import named_tools
from .query import read_query
from .words import MAX_QUERY_CHARACTERS, words_of

_MEANING = 0.7
_RANK = 0.5  # what being early in both lists counts beside the scores
_RANK_HALVES_AT = 10
_PLACES = 6
_ALMOST_ONE = 0.999  # 1 is for a tool whose very name was asked for


def fused(worded: Sequence[Found], meant: Sequence[tuple[int, float]], limit: int) -> list[Found]:
    """Return at most ``limit`` tools of both lists, each in order: positions with scores up to 1.

    Scores of words and cosines are of different scales: each counts as a part of the best of its list.
    """
    most_worded = max((one.score for one in worded if one.score < 1), default=0.0) or 1.0
    most_meant = max((cosine for _, cosine in meant), default=0.0)
    if most_meant <= 0:
        return list(worded[:limit])
    sums: dict[int, float] = {}
    for rank, (position, score) in enumerate(worded):
        sums[position] = score / most_worded + _of_rank(rank)
    for rank, (position, cosine) in enumerate(meant):
        sums[position] = sums.get(position, 0.0) + _MEANING * (max(cosine, 0.0) / most_meant + _of_rank(rank))
    most = min(max(most_meant, most_worded if worded else 0.0), _ALMOST_ONE)
    scale = most / ((1 + _MEANING) * (1 + _RANK))
    named = {one.position for one in worded if one.score == 1}
    found = [Found(at, 1.0 if at in named else round(min(total * scale, most), _PLACES)) for at, total in sums.items()]
    return sorted(found, key=lambda one: (-one.score, one.position))[:limit]


def _of_rank(rank: int) -> float:
    return _RANK * _RANK_HALVES_AT / (_RANK_HALVES_AT + rank)


STRATEGY_SECONDS = 10.0
_TEXT_CHARACTERS = 500
_LOOKED_AT = 50  # of each list, before they are made one
_log = logging.getLogger("codemode.search")

ResultT = TypeVar("ResultT")


class SearchStrategy(Protocol):
    """A search of the host's own, which replaces ours.

    ``search(query, tools, limit)`` gets what may be found as mappings with name, description and, where there are any,
    app_id, source and tags; it gives names, or pairs of a name and a score from 0 to 1, best first. Sync or async.
    """

    def search(self, query: str, tools: list[dict[str, Any]], limit: int, /) -> Any: ...


class ToolSearch:
    """Searches an unchanging set of tools. Words are always searched; what the host gives beside them never fails it.

    ``embed`` takes a list of texts and gives a vector of numbers for each; sync, in a thread, or async.
    """

    def __init__(
        self,
        tools: Iterable[tuple[str, DescribedTool]],
        *,
        embed: Embed | None = None,
        strategy: SearchStrategy | None = None,
    ) -> None:
        self._tools = named_tools(tools)
        self.index = ToolIndex(self._tools)
        self._meanings = Embeddings(embed) if embed else None
        self._strategy = strategy
        self._told: set[str] = set()
        self._texts: dict[bytes, str] | None = None
        self._digests: list[bytes] = []
        self._vectors: list[Vector] | None = None

    def updated(self, tools: Iterable[tuple[str, DescribedTool]]) -> ToolSearch:
        """Return a search of these tools; this one goes on for its own. What has not changed is not done again."""
        new = ToolSearch(tools, strategy=self._strategy)
        new.index = self.index.updated(new._tools)
        new._meanings = self._meanings
        new._told = self._told
        return new

    @property
    def is_ready(self) -> bool:
        """True once a search has used the vectors of all tools, or where there are none to wait for."""
        return self._meanings is None or self._vectors is not None

    async def prepare(self) -> None:
        """Make the index now, in a thread, unless it is made. The first search would."""
        await _in_thread(self.index.prepare)

    async def answer(self, query: str, limit: int, among: Collection[int] | None = None) -> Answer:
        """Return at most ``limit`` tools that fit, best first, of the positions ``among``; and warnings."""
        if self._strategy is not None:
            try:
                return Answer(await self._by_strategy(self._strategy, query, limit, among), ())
            except Unusable as unusable:
                return await self._by_words(query, limit, among, self._warning(unusable))
        if self._meanings is None or not read_query(query).words:
            return await self._by_words(query, limit, among)
        return await self._by_both(self._meanings, query, limit, among)

    async def _by_words(self, query: str, limit: int, among: Collection[int] | None, *warnings: str) -> Answer:
        found, own = await _in_thread(lambda: self.index.answer(query, limit, among))
        return Answer(found, (*warnings, *own))

    async def _by_both(self, meanings: Embeddings, query: str, limit: int, among: Collection[int] | None) -> Answer:
        asking = asyncio.ensure_future(meanings.of_query(query[:MAX_QUERY_CHARACTERS]))
        try:
            if self._texts is None:
                self._digests, self._texts = await _in_thread(self._read_texts)
            problem = meanings.prepare(self._texts) if self._vectors is None else None
            worded = await _in_thread(lambda: self.index.search(query, max(limit, _LOOKED_AT), among))
            vector = await asking
        except Unusable as unusable:
            return await self._by_words(query, limit, among, self._warning(unusable))
        finally:
            asking.cancel()
        vectors = self._vectors = self._vectors or meanings.of_texts(self._digests)
        if vectors is None:
            return await self._by_words(query, limit, among, *([self._warning(Unusable(problem))] if problem else []))
        places = range(len(vectors)) if among is None else [at for at in among if 0 <= at < len(vectors)]
        meant = await _in_thread(lambda: nearest(vector, vectors, places, max(limit, _LOOKED_AT)))
        return Answer(fused(worded, meant, limit), ())

    async def _by_strategy(
        self, strategy: SearchStrategy, query: str, limit: int, among: Collection[int] | None
    ) -> list[Found]:
        infos = await _in_thread(lambda: self._infos(among))
        positions = {name: at for at, (name, _) in enumerate(self._tools) if among is None or at in among}
        if is_async(strategy.search):
            asked = strategy.search(query, infos, limit)
        else:
            asked = Errands("codemode-strategy", 1).run(lambda: strategy.search(query, infos, limit))
        given = await bounded(asked, "the search strategy", STRATEGY_SECONDS)
        if inspect.isawaitable(given):
            given = await bounded(given, "the search strategy", STRATEGY_SECONDS)
        return _named(given, positions, limit)

    def _infos(self, among: Collection[int] | None) -> list[dict[str, Any]]:
        return [_info(name, tool) for at, (name, tool) in enumerate(self._tools) if among is None or at in among]

    def _read_texts(self) -> tuple[list[bytes], dict[bytes, str]]:
        texts = [_text_of(name, tool) for name, tool in self._tools]
        digests = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        return digests, dict(zip(digests, texts, strict=True))

    def _warning(self, unusable: Unusable) -> str:
        reason = str(unusable)
        if reason not in self._told:
            self._told.add(reason)
            _log.warning("tools are searched by words alone: %s", reason, exc_info=unusable.__cause__)
        return f"These tools were found by words alone: {reason}."


async def _in_thread(work: Callable[[], ResultT]) -> ResultT:
    return await run_check(LARGE_CHARACTERS, work)


def _text_of(name: str, tool: DescribedTool) -> str:
    from ...signatures.declarations import summarize_tool

    return f"{' '.join(words_of(name[:_TEXT_CHARACTERS]))}: {summarize_tool(tool)[:_TEXT_CHARACTERS]}"


def _info(name: str, tool: DescribedTool) -> dict[str, Any]:
    from ...signatures.declarations import summarize_tool

    about = mapping_or_empty(mapping_or_empty(getattr(tool, "metadata", None)).get("codecall"))
    more = {"app_id": about.get("appId"), "source": about.get("source"), "tags": about.get("tags")}
    return {"name": name, "description": summarize_tool(tool), **{key: value for key, value in more.items() if value}}


def _named(given: Any, positions: Mapping[str, int], limit: int) -> list[Found]:
    """Return the tools that a strategy named. Raises `Unusable` for what is neither names nor pairs."""
    if not isinstance(given, list | tuple):
        raise Unusable(f"the search strategy gave a {type(given).__name__}, not a list")
    listed = cast("Sequence[Any]", given)
    found: dict[int, Found] = {}
    for rank, one in enumerate(listed):
        pair = cast("tuple[Any, ...]", one) if isinstance(one, tuple | list) else (one, 1 - rank / len(listed))
        if len(pair) != 2 or not isinstance(pair[0], str) or not _is_score(pair[1]):
            raise Unusable("the search strategy gave something else than names, or names with scores")
        position = positions.get(pair[0])
        if position is not None:
            found.setdefault(position, Found(position, min(max(float(pair[1]), 0.0), 1.0)))
    return list(found.values())[:limit]


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
