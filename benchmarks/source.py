"""Times per kilobyte of source for each step of a program's analysis, against the bare tree-sitter parse.

Run: python benchmarks/source.py
"""

import sysconfig
import time
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import Any

from codemode.guest.analysis import analyse, collecting, edits, facts, parse, strip_types
from codemode.source.checks import find_program_problems

PROGRAM = """\
interface Order { userId: number; total: number; note?: string }
const [users, orders] = await Promise.all([
  tools.list_users({ active: true }) as Promise<{ id: number; name: string }[]>,
  tools.list_orders({ since: "2026-01-01", limit: 100 }) as Promise<Order[]>,
]);
const totals = new Map<number, number>();
for (const order of orders) {
  // Orders without a total count as nothing.
  totals.set(order.userId, (totals.get(order.userId) ?? 0) + order.total);
}
const best = users
  .map((user): { name: string; total: number } => ({ name: user.name, total: totals.get(user.id)! ?? 0 }))
  .filter((row) => row.total > 0 && /^[a-z]/i.test(row.name))
  .sort((a, b) => b.total - a.total);
"""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"limit": {"type": "integer"}}, "required": []}
SIZES = (1, 8, 64)
PARSE_MS = 60_000
BUDGET_SECONDS = 0.5
SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of as many runs as fit the budget."""
    taken: list[float] = []
    while sum(taken) < BUDGET_SECONDS and len(taken) < 200:
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1000)
    return median(taken)


def steps(source: str) -> dict[str, Callable[[], Any]]:
    """The steps of analysing ``source``, each to be timed by itself."""
    data = source.encode()
    parser = parse.load_parser(SITE_PATHS)
    symbols = parse.map_symbols_by_kind(parser)
    analyser = analyse.load_analyser(SITE_PATHS)
    tree = parser.parse(data)
    found = analyser(source, PARSE_MS)["facts"]
    parts = {name: import_module(f"codemode.guest.analysis.{name}") for name in analyse.MODULE_NAMES}
    walk = collecting.WalkListenerFactory(symbols, parts)
    tools = ["list_users", "list_orders", *(f"tool_{index}" for index in range(100))]

    def strip() -> str:
        stripper = strip_types.TypeStripper(data, edits.BlankedGap)
        parse.walk_tree(tree, parse.map_handlers_by_symbol(symbols, [stripper.get_handlers_by_kind()]))
        return edits.blank_gaps_and_separate_statements(data, stripper.gaps)

    def collect() -> dict[str, Any]:
        collector = facts.FactCollector(data)
        parse.walk_tree(tree, parse.map_handlers_by_symbol(symbols, [collector.get_handlers_by_kind()]))
        return collector.build_facts()

    def walk_with(*, names: bool) -> dict[str, Any]:
        listeners = walk.take_listeners(data, names)
        parse.walk_tree(tree, listeners.handlers)
        gaps = listeners.stripper.gaps
        edits.blank_gaps_and_separate_statements(data, gaps)
        return listeners.build_facts(lambda: edits.blank_gaps_and_comments_bytewise(data, gaps))

    return {
        "bare parse": lambda: parser.parse(data),
        "parse": lambda: parse.parse(parser, data, PARSE_MS, time.monotonic),
        "strip": strip,
        "facts": collect,
        "walk": lambda: walk_with(names=False),
        "walk, names": lambda: walk_with(names=True),
        "check": lambda: find_program_problems(found, tools, lambda _name: SCHEMA),
        "whole": lambda: analyser(source, PARSE_MS),
        "whole, names": lambda: analyser(source, PARSE_MS, analyse.FUNCTION_BODY_WITH_NAMES),
        "whole, module": lambda: analyser(source, PARSE_MS, analyse.MODULE),
    }


def main() -> None:
    """Print one line for each size and step."""
    print(f"{'size':>8} {'step':<12} {'ms':>9} {'ms/KB':>9} {'x bare':>7}")
    for size in SIZES:
        source = f"{{\n{PROGRAM}}}\n" * max(1, size * 1024 // len(PROGRAM))
        kilobytes = len(source) / 1024
        times = {name: milliseconds(run) for name, run in steps(source).items()}
        for name, taken in times.items():
            ratio = taken / times["bare parse"]
            print(f"{kilobytes:6.1f}KB {name:<12} {taken:9.3f} {taken / kilobytes:9.4f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
