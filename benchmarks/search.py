"""How well and how fast `tools.$search` finds: queries and their answers over real MCP tools; times up to 10,000.

`python -m benchmarks.search`; with `--missed` each query whose answer is not the first, and what came first instead.
For a comparison with another commit run the same file on a tree of that commit: `git worktree add TREE REF`, then
`PYTHONPATH=TREE/src python -m benchmarks.search`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from codemode.tools.catalog import Catalog

from .signatures import McpTool, best_ms, sample_tools

DATA = Path(__file__).parents[1] / "tests" / "data"
COUNTS = (1000, 10_000)
TIMED = (
    "list issues of a repository",
    "lsit direcotry",
    "get the text of a web page and save it as markdown in a file",
)
SHOWN = 50
PAGE = 8


def catalog() -> tuple[Catalog[McpTool], dict[str, str]]:
    """All tools of the sample, a name that two servers have made two; and how each is called by its server."""
    tools: dict[str, McpTool] = {}
    own_names: dict[str, str] = {}
    for server, listed in json.loads((DATA / "mcp_tools_sample.json").read_text(encoding="utf-8"))["servers"].items():
        for tool in listed:
            own = tool["name"]
            name = f"{own}_{server.rsplit('@', 1)[0].rsplit('-', 1)[-1]}" if own in tools else own
            tools[name] = McpTool(own, tool.get("description", ""), tool["inputSchema"], tool.get("outputSchema"))
            own_names[name] = own
    return Catalog(tools), own_names


def queries() -> dict[str, list[tuple[str, set[str]]]]:
    """Queries by kind, each with the names of the tools that answer it."""
    kinds = json.loads((DATA / "search_queries.json").read_text(encoding="utf-8"))["kinds"]
    return {kind: [(query, set(names.split())) for query, names in asked] for kind, asked in kinds.items()}


def row(label: str, ranks: Sequence[int]) -> str:
    """What ranks come to, 0 standing for an answer that is not among the first 50."""
    first = sum(rank == 1 for rank in ranks) / len(ranks)
    page = sum(0 < rank <= PAGE for rank in ranks) / len(ranks)
    reciprocal = sum(1 / rank for rank in ranks if rank) / len(ranks)
    return f"{label:<16}{len(ranks):>8}{first:>8.3f}{page:>8.3f}{reciprocal:>8.3f}"


def print_quality(*, is_missed_shown: bool) -> None:
    """One row per kind of query, then all of them."""
    tools, own_names = catalog()
    print(f"{'queries':<16}{'count':>8}{'hit@1':>8}{'hit@8':>8}{'MRR':>8}   ({len(tools)} tools)")
    ranks: list[int] = []
    for kind, asked in queries().items():
        of_kind: list[int] = []
        for query, answers in asked:
            names = [own_names[found["name"]] for found in tools.search(query, SHOWN)]
            of_kind.append(next((at for at, name in enumerate(names, 1) if name in answers), 0))
            if is_missed_shown and of_kind[-1] != 1:
                print(f"  {query!r}: {', '.join(sorted(answers))} at {of_kind[-1]}, first {', '.join(names[:3])}")
        print(row(kind, of_kind))
        ranks += of_kind
    print(row("all", ranks))


def print_times() -> None:
    """Milliseconds for the first search, which makes the index, and for each query after it."""
    print(f"\n{'tools':>7}{'index ms':>10}   search ms")
    for count in COUNTS:
        tools = {tool.name: tool for tool in sample_tools(count)}
        made = Catalog(tools)
        index_ms = best_ms(lambda tools=tools: Catalog(tools).search("warm up"))
        made.search("warm up")
        times = [f"{best_ms(lambda made=made, query=query: made.search(query)):.2f} {query!r}" for query in TIMED]
        print(f"{count:>7}{index_ms:>10.1f}   {'; '.join(times)}")


if __name__ == "__main__":
    print_quality(is_missed_shown="--missed" in sys.argv)
    print_times()
