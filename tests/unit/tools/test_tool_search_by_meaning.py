"""Search by meaning beside search by words: a real model, and functions that fail in every way."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import each_row
from waiting import until, within

from codemode.host.sync import run_sync
from codemode.tools.search import embeddings, tool_search
from codemode.tools.search.embeddings import find_nearest_vectors, parse_unit_vectors
from codemode.tools.search.index import ScoredTool, SearchResults
from codemode.tools.search.tool_search import ToolSearch, fuse_results

TOOLS = [
    PlainTool("move_file", "Move or rename files and directories."),
    PlainTool("git_log", "Show the commit history."),
    PlainTool("get_forecast", "Weather for the next days at a location."),
    PlainTool("send_invoice", "Bill a customer."),
    *(PlainTool(f"filler_{n}", f"Something else, number {n}.") for n in range(200)),
]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be too slow that a test does not mean to be: on a busy machine a thread may begin seconds late."""
    monkeypatch.setattr(embeddings, "EMBED_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(tool_search, "STRATEGY_SECONDS", 60.0)


def search_of(tools: list[PlainTool] = TOOLS, **given: Any) -> ToolSearch:
    return ToolSearch([(tool.name, tool) for tool in tools], **given)


def names(answer: SearchResults, tools: list[PlainTool] = TOOLS) -> list[str]:
    return [tools[one.position].name for one in answer.found]


@cache
def model() -> Any:
    wordllama = pytest.importorskip("wordllama")  # has no wheel for every Python

    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def real(texts: list[str]) -> Any:
    return model().embed(texts)


async def real_async(texts: list[str]) -> Any:
    return real(texts).tolist()


def plain(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0, -1.0] for text in texts]


async def ready(search: ToolSearch) -> None:
    """Ask until every text has its vector."""
    async with asyncio.timeout(60):
        while search._vectors is None:
            await search.search_with_warnings("anything", 1)
            await asyncio.sleep(0)


# --- what is found ---


@pytest.mark.parametrize("embed", [real, real_async, lambda texts: real_async(texts)], ids=["sync", "async", "gives"])
def test_meaning_finds_what_no_word_does(embed):
    async def asked() -> tuple[SearchResults, SearchResults]:
        search = search_of(embed=embed)
        await ready(search)
        return await search.search_with_warnings(
            "do I need an umbrella outdoors", 3
        ), await search.search_with_warnings("rain", 3, {0, 1, 5})

    answer, narrowed = within(asked())
    assert names(answer)[0] == "get_forecast"
    assert answer.warnings == ()
    assert {one.position for one in narrowed.found} <= {0, 1, 5}
    assert narrowed.found
    assert names(within(search_of().search_with_warnings("do I need an umbrella outdoors", 3))) == []


def test_the_very_name_stays_first_with_score_1():
    async def asked() -> SearchResults:
        search = search_of(embed=real)
        await ready(search)
        return await search.search_with_warnings("get_forecast", 5)

    answer = within(asked())
    assert answer.found[0] == ScoredTool(2, 1.0)
    assert all(0 <= one.score < 1 for one in answer.found[1:])


def test_a_search_does_not_wait_for_the_texts():
    """The first one is answered by words while the first batch is still held back."""
    free = threading.Event()

    def slow(texts: list[str]) -> Any:
        if len(texts) > 1:
            assert free.wait(60)
        return plain(texts)

    async def asked() -> tuple[SearchResults, bool]:
        search = search_of(embed=slow)
        search._embeddings._queries["commit history"] = parse_unit_vectors([[1.0, 2.0, 3.0]], 1, None)[0]
        answer = await search.search_with_warnings("commit history", 3)
        free.set()
        was_ready = search._vectors is not None
        await ready(search)
        return answer, was_ready

    answer, was_ready = within(asked())
    assert (names(answer), answer.warnings, was_ready) == (["git_log"], (), False)


@pytest.mark.parametrize("is_async", [True, False])
def test_each_text_is_embedded_once_for_its_content(is_async):
    seen: Counter[str] = Counter()
    sizes: list[int] = []

    def counted(texts: list[str]) -> Any:
        seen.update(texts)
        sizes.append(len(texts))
        return plain(texts)

    async def counted_async(texts: list[str]) -> Any:
        return counted(texts)

    async def asked() -> None:
        search = search_of(embed=counted_async if is_async else counted)
        await ready(search)
        changed = [*reversed(TOOLS), PlainTool("new", "Walrus.")]
        later = search.with_tools([(tool.name, tool) for tool in changed])
        await ready(later)
        assert names(await search.search_with_warnings("git_log", 1)) == ["git_log"]
        assert names(await later.search_with_warnings("git_log", 1), changed) == ["git_log"]

    within(asked())
    assert set(seen.values()) == {1}
    assert len(seen) == len(TOOLS) + 1 + 2  # the texts, and the two queries
    assert max(sizes) <= 64


def test_sync_callers_get_there_too():
    search = search_of(embed=real)
    deadline = time.monotonic() + 120
    while search._vectors is None and time.monotonic() < deadline:
        run_sync(search.search_with_warnings("rain", 3))
    assert names(run_sync(search.search_with_warnings("do I need an umbrella outdoors", 1))) == ["get_forecast"]


# --- what goes wrong ---


def raising(_texts: list[str]) -> Any:
    raise ValueError("the password is walrus")


def cancelled(_texts: list[str]) -> Any:
    raise asyncio.CancelledError


async def raising_async(_texts: list[str]) -> Any:
    raise KeyError("the password is walrus")


async def cancelled_async(_texts: list[str]) -> Any:
    raise asyncio.CancelledError


def exiting(_texts: list[str]) -> Any:
    raise SystemExit(3)


def giving(value: Any) -> Any:
    return lambda texts: value if not callable(value) else value(len(texts))


BAD = {
    "raises": raising,
    "raises cancelled": cancelled,
    "raises async": raising_async,
    "is cancelled": cancelled_async,
    "exits": exiting,
    "stops": lambda _texts: next(iter(())),
    "none": giving(None),
    "text": giving("text"),
    "number": giving(7),
    "too few": giving(lambda count: [[1.0]] * (count - 1)),
    "too many": giving(lambda count: [[1.0]] * (count + 1)),
    "nan": giving(lambda count: [[1.0, math.nan]] * count),
    "infinite": giving(lambda count: [[1.0, -math.inf]] * count),
    "too large": giving(lambda count: [[10**400]] * count),
    "words": giving(lambda count: [["1.0"]] * count),
    "booleans": giving(lambda count: [[True]] * count),
    "nothing": giving(lambda count: [[]] * count),
    "no vectors": giving(lambda count: [1.0] * count),
    "none in it": giving(lambda count: [[None]] * count),
    "huge": giving(lambda count: [[1.0] * 20_000] * count),
    "awaitable": giving(lambda count: asyncio.sleep(0)),
    "different": giving(lambda count: [[1.0] * (1 + n % 2) for n in range(count)]),
}


@pytest.mark.parametrize("embed", BAD.values(), ids=BAD)
def test_whatever_it_does_costs_a_warning_and_never_a_search(embed, caplog):
    async def asked() -> list[SearchResults]:
        search = search_of(embed=embed)
        return [await search.search_with_warnings(query, 3) for query in ("commit history", "bill a customer") * 3]

    with caplog.at_level(logging.WARNING, "codemode.search"):
        answers = within(asked())
    assert [names(answer)[0] for answer in answers] == ["git_log", "send_invoice"] * 3
    warned = {warning for answer in answers for warning in answer.warnings}
    assert answers[-1].warnings
    assert all("by words alone" in warning and "walrus" not in warning for warning in warned)
    assert not any("longer than" in warning for warning in warned)
    told = [record.getMessage() for record in caplog.records if record.name == "codemode.search"]
    assert len(told) == len(set(told)) == len(warned)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_slow_one_is_waited_for_once(monkeypatch, is_async):
    monkeypatch.setattr(embeddings, "EMBED_TIMEOUT_SECONDS", 0.05)
    free = threading.Event()
    waits: list[float] = []
    real_wait = asyncio.wait

    async def wait(*given: Any, **named: Any) -> Any:
        waits.append(named["timeout"] or 0)
        return await real_wait(*given, **named)

    monkeypatch.setattr(embeddings.asyncio, "wait", wait)

    def hanging(texts: list[str]) -> Any:
        assert free.wait(60)
        return plain(texts)

    async def hanging_async(_texts: list[str]) -> Any:
        await asyncio.Event().wait()

    async def asked() -> list[SearchResults]:
        search = search_of(embed=hanging_async if is_async else hanging)
        return [await search.search_with_warnings("commit history", 3) for _ in range(5)]

    try:
        answers = within(asked())
    finally:
        free.set()
    assert [names(answer) for answer in answers] == [["git_log"]] * 5
    assert all(answer.warnings for answer in answers)
    assert waits.count(0.05) == 1


def test_one_that_was_mended_is_used_again():
    broken = [True]

    def mended(texts: list[str]) -> Any:
        if broken[0]:
            raise OSError
        return plain(texts)

    async def asked() -> tuple[SearchResults, SearchResults]:
        search = search_of(embed=mended)
        before = await search.search_with_warnings("commit history", 3)
        broken[0] = False
        await ready(search)
        return before, await search.search_with_warnings("commit history", 3)

    before, after = within(asked())
    assert (bool(before.warnings), after.warnings) == (True, ())


def test_vectors_of_another_dimension_than_the_texts_are_not_used():
    sizes = iter([3] + [2] * 99)

    def changing(texts: list[str]) -> Any:
        return [[1.0] * size for size in [next(sizes)] * len(texts)]

    async def asked() -> list[SearchResults]:
        search = search_of(embed=changing)
        return [await search.search_with_warnings("commit history", 3) for _ in range(3)]

    assert any("gave a vector of" in warning for answer in within(asked()) for warning in answer.warnings)


def test_a_search_that_is_cancelled_leaves_nothing_running():
    entered = asyncio.Event()

    async def hanging(_texts: list[str]) -> Any:
        entered.set()
        await asyncio.Event().wait()

    async def asked() -> None:
        search = search_of(embed=hanging)
        task = asyncio.ensure_future(search.search_with_warnings("commit history", 3))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The batch of texts goes on beside searches, in two tasks; the third is the test.
        await until(lambda: len(asyncio.all_tasks() - {asyncio.current_task()}) <= 3)

    within(asked())


# --- a search of the host's own ---


class Strategy:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def search(self, query: str, tools: list[dict[str, Any]], limit: int) -> Any:
        self.asked.append((query, [tool["name"] for tool in tools], limit))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class AsyncStrategy(Strategy):
    async def search(self, query: str, tools: list[dict[str, Any]], limit: int) -> Any:
        return super().search(query, tools, limit)


@pytest.mark.parametrize("kind", [Strategy, AsyncStrategy])
def test_a_strategy_replaces_all_of_it(kind):
    strategy = kind(["send_invoice", "no such tool", ("move_file", 0.5), ("git_log", 7), "send_invoice"])
    answer = within(search_of(strategy=strategy).search_with_warnings("weather", 3, {0, 1, 2, 3}))
    assert names(answer) == ["send_invoice", "move_file", "git_log"]
    assert [one.score for one in answer.found] == [1.0, 0.5, 1.0]
    assert strategy.asked == [("weather", [tool.name for tool in TOOLS[:4]], 3)]
    assert answer.warnings == ()
    assert names(within(search_of(strategy=strategy).search_with_warnings("weather", 3, {1}))) == ["git_log"]
    assert len(within(search_of(strategy=strategy).search_with_warnings("weather", 1)).found) == 1


@each_row("kind", [Strategy, AsyncStrategy])
@each_row(
    "bad", [ValueError("walrus"), SystemExit(1), StopIteration(3), None, "git_log", [3], [("git_log", "1")], [("a",)]]
)
def test_a_strategy_that_fails_costs_a_warning(kind, bad):
    answer = within(search_of(strategy=kind(bad)).search_with_warnings("commit history", 3))
    assert names(answer) == ["git_log"]
    assert "the search strategy" in answer.warnings[0]
    assert "longer than" not in answer.warnings[0]
    assert "walrus" not in answer.warnings[0]


def test_a_strategy_that_hangs_costs_a_warning(monkeypatch):
    monkeypatch.setattr(tool_search, "STRATEGY_SECONDS", 0.05)

    class Hanging:
        async def search(self, *_: Any) -> Any:
            await asyncio.Event().wait()

    answer = within(search_of(strategy=Hanging()).search_with_warnings("commit history", 3))
    assert (names(answer), len(answer.warnings)) == (["git_log"], 1)


# --- vectors and ranks ---

NUMBERS = st.floats(-1e300, 1e300, allow_nan=False)
ROWS = st.integers(1, 6).flatmap(lambda size: st.lists(st.lists(NUMBERS, min_size=size, max_size=size), min_size=1))


@given(ROWS)
def test_cosines_are_those_of_the_definition(rows):
    vectors = parse_unit_vectors(rows, len(rows), None)
    found = dict(find_nearest_vectors(vectors[0], vectors, range(len(rows)), len(rows)))
    assert set(found) == set(range(len(rows)))
    assert all(-1.001 <= cosine <= 1.001 for cosine in found.values())
    assert found[0] == pytest.approx(1.0 if any(rows[0]) else 0.0, abs=1e-3)


def test_the_nearest_of_very_many_are_found_by_sign_first():
    chance = random.Random(7)
    rows = [[chance.gauss(0, 1) for _ in range(64)] for _ in range(3000)]
    vectors = parse_unit_vectors(rows, len(rows), None)
    exact = sorted(
        range(3000), key=lambda at: -sum(a * b for a, b in zip(vectors[9].numbers, vectors[at].numbers, strict=True))
    )
    found = [at for at, _ in find_nearest_vectors(vectors[9], vectors, range(3000), 10)]
    assert len(set(found) & set(exact[:10])) >= 8
    assert find_nearest_vectors(vectors[9], vectors, [4, 9, 5], 2)[0][0] == 9


FOUND = st.dictionaries(st.integers(0, 20), st.floats(0, 1), max_size=8).map(
    lambda scores: sorted((ScoredTool(*one) for one in scores.items()), key=lambda one: (-one.score, one.position))
)


@given(FOUND, st.dictionaries(st.integers(0, 20), st.floats(-1, 1), max_size=8), st.integers(1, 9))
def test_one_list_of_two(worded, cosines, limit):
    meant = sorted(cosines.items(), key=lambda one: -one[1])
    found = fuse_results(worded, meant, limit)
    assert len(found) <= limit
    assert len({one.position for one in found}) == len(found)
    assert {one.position for one in found} <= {one.position for one in worded} | set(cosines)
    assert all(0 <= one.score <= 1 for one in found)
    assert found == sorted(found, key=lambda one: (-one.score, one.position))
