"""How often a program finds the right one of 1,002 tools of 41 servers by `searchTools`, and what a client is given.

`python -m benchmarks.finding` (10 seconds); with `--missed` each query whose tool is not among the first eight, and
what came first instead: of the queries that are only ever measured it shows none. The tools of ten servers are looked
for, a query for each; 28 other servers stand beside them, and three of the ten under a second name. A tool of a second
name is as right as that of the first, for it is the same.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from codemode import Tool
from codemode.surfaces.modules.declarations import declare_server_within
from codemode.surfaces.modules.discovery import build_search_index, call_discovery_function
from codemode.surfaces.modules.module_tools import ListedServer, create_module_tools
from codemode.tools.server_lists import OmittedEntries

from . import prompts
from .gateway import as_given_at_start
from .search import PAGE, SHOWN, row

DATA = Path(__file__).parents[1] / "tests" / "data"
NAMES = ("filesystem", "memory", "github", "gitlab", "playwright", "tavily", "git", "time", "sqlite", "cloudwatch")
AGAIN = {"github": "team-github", "playwright": "other-playwright", "cloudwatch": "staging-cloudwatch"}

Count = Callable[[str], int]


class Wanted(NamedTuple):
    """A query, the server and the tool that are meant, and whether it is only ever measured."""

    query: str
    server: str
    tool: str
    is_held: bool


def servers() -> list[ListedServer]:
    """All servers, in the order of their names."""
    said: dict[str, list[dict[str, Any]]] = {**_read_file("mcp_tools_others.json")["servers"], **_wanted_tools()}
    said |= {name: said[first] for first, name in AGAIN.items()}
    return [_listed(name, said[name]) for name in sorted(said)]


def queries() -> Iterator[Wanted]:
    """Yield a query for each tool of the ten servers."""
    said = _read_file("finding_queries.json")
    for kind, is_held in (("held", True), ("tuned", False)):
        for server, asked in said[kind].items():
            for tool, query in asked.items():
                yield Wanted(query, server, tool, is_held)


def rank_of(given: Sequence[ListedServer], index: Any, wanted: Wanted) -> tuple[int, list[str]]:
    """Return at which place the tool comes, 0 where it is not among the first 50, and what came first."""
    said = call_discovery_function(given, index, "searchTools", [wanted.query, {"limit": SHOWN, "detail": "name"}])
    found = [f"{one['serverId']}.{one['toolName']}" for one in said["results"]]
    right = {f"{name}.{wanted.tool}" for name in (wanted.server, AGAIN.get(wanted.server))}
    return next((at for at, name in enumerate(found, 1) if name in right), 0), found[:3]


def print_found(*, is_missed_shown: bool) -> None:
    """One row for each of the ten servers, one for each half of the queries, and one for all."""
    given = servers()
    index = build_search_index(given)
    ranks: dict[str, list[int]] = {name: [] for name in (*NAMES, "may be looked at", "only measured", "all")}
    for wanted in queries():
        rank, first = rank_of(given, index, wanted)
        for of in (wanted.server, "only measured" if wanted.is_held else "may be looked at", "all"):
            ranks[of].append(rank)
        if is_missed_shown and not 0 < rank <= PAGE and not wanted.is_held:
            print(f"  {wanted.query!r}: {wanted.server}.{wanted.tool} at {rank}, first {', '.join(first)}")
    tools = sum(len(one.tools) for one in given)
    print(f"{'queries':<24}{'count':>8}{'hit@1':>8}{'hit@8':>8}{'MRR':>8}   ({tools:,} tools of {len(given)} servers)")
    for label, of in ranks.items():
        print(row(label, of))


async def print_sizes() -> None:
    """What a client is given at the start, and with one look-up, as parts of the direct listing."""
    what, count = tokens()
    print(f"\n{what:<24}{'listed':>8}{'start':>8}{'part':>8}{'look-up':>8}{'part':>8}")
    for label, given in (("these", servers()), ("with whole schemas", prompts.many_servers())):
        direct = count(prompts.direct_listing(given))
        start = count(await as_given_at_start(given))
        looked_up = sum(count(declare_server_within(one)) for one in given) // len(given)
        parts = (f"1/{direct / size:.0f}" for size in (start, start + looked_up))
        print(f"{label:<24}{direct:>8}{start:>8}{next(parts):>8}{looked_up:>8}{next(parts):>8}")


def tokens() -> tuple[str, Count]:
    """Return what counts tokens: the tokenizer that `wordllama` brings, or else a quarter of the characters."""
    try:
        home = Path(str(importlib.import_module("wordllama").__file__)).parent
        made: Any = importlib.import_module("tokenizers").Tokenizer
        tokenizer = made.from_file(str(home / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    except (ImportError, OSError):
        return "characters / 4", lambda text: len(text) // prompts.CHARACTERS_OF_A_TOKEN
    return "tokens of Llama 2", lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _listed(name: str, tools: list[dict[str, Any]]) -> ListedServer:
    made = {one["name"]: _tool(one) for one in tools}
    return ListedServer(name, name, name, None, None, (), create_module_tools(name, made, OmittedEntries()))


def _tool(said: dict[str, Any]) -> Tool:
    schema = said.get("inputSchema") or {"type": "object", "properties": said.get("parameters", {})}
    return Tool(
        said["name"],
        execute=None,
        description=said.get("description") or "",
        input_schema=schema,
        output_schema=said.get("outputSchema"),
        annotations=said.get("annotations"),
    )


def _wanted_tools() -> dict[str, list[dict[str, Any]]]:
    return dict(zip(NAMES, _read_file("mcp_tools_sample.json")["servers"].values(), strict=True))


def _read_file(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    print_found(is_missed_shown="--missed" in sys.argv)
    asyncio.run(print_sizes())
