"""How well and how fast the search of tools finds: queries and their answers over real MCP tools; times up to 10,000.

`python -m benchmarks.search`; with `--missed` each query whose answer is not the first, and what came first instead: of
the queries that are only ever measured it shows none. Rows with a model need `wordllama`, those beside fastmcp's BM25
need `fastmcp`. For a comparison with another commit run the same file on a tree of that commit:
`git worktree add TREE REF`, then `PYTHONPATH=TREE/src python -m benchmarks.search`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from codemode.tools.search.index import ToolIndex
from codemode.tools.search.tool_search import ToolSearch

from .signatures import McpTool, sample_tools

DATA = Path(__file__).parents[1] / "tests" / "data"
COUNTS = (1000, 10_000)
SHOWN = 50
PAGE = 8
_BUILDS = 3

Search = Callable[[str], Sequence[int]]


class Asked(NamedTuple):
    """A query, the names of the tools that answer it, and whether it is only ever measured."""

    query: str
    answers: set[str]
    is_held: bool


def tools() -> list[McpTool]:
    """All tools of the sample, under the names that their servers give them."""
    servers = json.loads((DATA / "mcp_tools_sample.json").read_text(encoding="utf-8"))["servers"]
    return [
        McpTool(tool["name"], tool.get("description", ""), tool["inputSchema"], tool.get("outputSchema"))
        for listed in servers.values()
        for tool in listed
    ]


def queries() -> Iterator[tuple[str, list[Asked]]]:
    """Yield kinds of queries: those that the search was tuned on, and two sets of which half is only measured."""
    for kind, asked in json.loads((DATA / "search_queries.json").read_text(encoding="utf-8"))["kinds"].items():
        yield kind, [Asked(query, set(names.split()), is_held=False) for query, names in asked]
    for name, kinds in json.loads((DATA / "search_queries_held.json").read_text(encoding="utf-8"))["sets"].items():
        for kind, asked in kinds.items():
            yield (
                f"{name}: {kind}",
                [Asked(query, set(names.split()), is_held=bool(at % 2)) for at, (query, names) in enumerate(asked)],
            )


def row(label: str, ranks: Sequence[int]) -> str:
    """What ranks come to, 0 standing for an answer that is not among the first 50."""
    first = sum(rank == 1 for rank in ranks) / len(ranks)
    page = sum(0 < rank <= PAGE for rank in ranks) / len(ranks)
    reciprocal = sum(1 / rank for rank in ranks if rank) / len(ranks)
    return f"{label:<24}{len(ranks):>8}{first:>8.3f}{page:>8.3f}{reciprocal:>8.3f}"


def print_quality(search: Search, given: list[McpTool], *, is_missed_shown: bool) -> None:
    """One row per kind of query, then all of each set: of what may be looked at, and of what is only measured."""
    print(f"{'queries':<24}{'count':>8}{'hit@1':>8}{'hit@8':>8}{'MRR':>8}   ({len(given)} tools)")
    together: dict[str, list[int]] = {}
    for kind, asked in queries():
        ranks: list[int] = []
        for query, answers, is_held in asked:
            names = [given[position].name for position in search(query)]
            rank = next((at for at, name in enumerate(names, 1) if name in answers), 0)
            ranks.append(rank)
            of_set = kind.split(":")[0] if ":" in kind else "first"
            together.setdefault(f"all {of_set}{', only measured' if is_held else ''}", []).append(rank)
            if is_missed_shown and rank != 1 and not is_held:
                print(f"  {query!r}: {', '.join(sorted(answers))} at {rank}, first {', '.join(names[:3])}")
        print(row(kind, ranks))
    for label, ranks in sorted(together.items()):
        print(row(label, ranks))


def by_words(given: list[McpTool]) -> Search:
    """Search by words alone."""
    index = ToolIndex((tool.name, tool) for tool in given)
    return lambda query: [one.position for one in index.search(query, SHOWN)]


async def by_meaning(given: list[McpTool], embed: Callable[[list[str]], Any]) -> Search:
    """Search by words and by a model, once every tool has its vector."""
    search = ToolSearch([(tool.name, tool) for tool in given], embed=embed)
    asked = dict.fromkeys(one.query for _, many in queries() for one in many)
    while not search.is_ready:
        await search.answer("anything", 1)
        await asyncio.sleep(0.01)
    found = {query: [one.position for one in (await search.answer(query, SHOWN)).found] for query in asked}
    return lambda query: found[query]


def model() -> Callable[[list[str]], Any] | None:
    """The embeddings that the tests use, where they are installed."""
    try:
        wordllama: Any = importlib.import_module("wordllama")
    except ImportError:
        return None
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True).embed


def peer() -> tuple[Any, Any] | None:
    """The BM25 of fastmcp and what it reads of a tool, where it is installed."""
    try:
        found: Any = importlib.import_module("fastmcp.server.transforms.search.bm25")
    except ImportError:
        return None
    return found._BM25Index, found._extract_searchable_text  # noqa: SLF001 - it has no other name


class PeerTool(NamedTuple):
    """What fastmcp's search reads of a tool."""

    name: str
    description: str
    parameters: dict[str, Any]


def print_times() -> None:
    """Milliseconds to make an index, and for each query once, beside those of fastmcp where it is installed."""
    bm25 = peer()
    print(f"\n{'tools':>7}{'':>10}{'index ms':>10}{'median ms':>11}{'p95 ms':>9}")
    for count in COUNTS:
        given = sample_tools(count)
        ours = _times(lambda given=given: _our_index(given))
        print(_times_row(count, "codemode", ours))
        if bm25 is not None:
            peers = _times(lambda given=given: _peer_index(given, *bm25))
            print(_times_row(count, "fastmcp", peers))
            ratios = [f"{our / its:.2f}x" for our, its in zip(ours, peers, strict=True)]
            print(f"{count:>7}{'ratio':>10}{ratios[0]:>10}{ratios[1]:>11}{ratios[2]:>9}")
    if bm25 is None:
        print("no times of a peer: fastmcp is not installed (pip install fastmcp)")


def _our_index(given: list[McpTool]) -> Callable[[str], object]:
    index = ToolIndex((tool.name, tool) for tool in given)
    index.prepare()
    return lambda query: index.search(query, PAGE)


def _peer_index(given: list[McpTool], bm25: Any, text_of: Any) -> Callable[[str], object]:
    index = bm25()
    index.build([text_of(PeerTool(tool.name, tool.description, tool.input_json_schema)) for tool in given])
    return lambda query: index.query(query, PAGE)


def _times(make: Callable[[], Callable[[str], object]]) -> tuple[float, float, float]:
    making: list[float] = []
    for _ in range(_BUILDS - 1):
        started = time.perf_counter()
        make()
        making.append(time.perf_counter() - started)
    started = time.perf_counter()
    search = make()
    making.append(time.perf_counter() - started)
    took: list[float] = []
    for _, asked in queries():
        for one in asked:
            started = time.perf_counter()
            search(one.query)
            took.append(time.perf_counter() - started)
    took.sort()
    return min(making) * 1000, statistics.median(took) * 1000, took[len(took) * 95 // 100] * 1000


def _times_row(count: int, who: str, times: tuple[float, float, float]) -> str:
    return f"{count:>7}{who:>10}{times[0]:>10.1f}{times[1]:>11.2f}{times[2]:>9.2f}"


def main() -> None:
    """Print all of it."""
    given = tools()
    is_missed_shown = "--missed" in sys.argv
    print_quality(by_words(given), given, is_missed_shown=is_missed_shown)
    embed = model()
    if embed is None:
        print("\nno rows with a model: wordllama is not installed")
    else:
        print("\nwith the model of wordllama")
        print_quality(asyncio.run(by_meaning(given, embed)), given, is_missed_shown=is_missed_shown)
    print_times()


if __name__ == "__main__":
    main()
