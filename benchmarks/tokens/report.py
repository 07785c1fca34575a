"""The tables of docs/performance.md, and putting them there between their marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .transcript import Counted

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- tokens: written by make bench-tokens -->", "<!-- end of tokens -->"

# By task and by way of working.
Results = Mapping[str, Mapping[str, Counted]]
Measure = Callable[[Counted], int]

_COMPARED = ("codeMode", "CodeCall")
_REQUESTS: tuple[str, Measure] = ("requests", lambda one: one.requests)
_GIVEN: tuple[str, Measure] = ("tokens in", lambda one: one.given)
_BESIDE: tuple[str, Measure] = ("beside the tools", lambda one: one.beside_tools)
_LISTED: tuple[str, Measure] = ("of them the tools", lambda one: one.listed)
_NEW: tuple[str, Measure] = ("in, each once", lambda one: one.new)
_WRITTEN: tuple[str, Measure] = ("tokens out", lambda one: one.written)


def whole_table(results: Results) -> str:
    """Return the table: all ways, and each token once."""
    ways = tuple(next(iter(results.values())))
    return "\n".join([*_sums(results, ways), "", *_rows(results, ways, (_REQUESTS, _BESIDE, _NEW, _WRITTEN))])


def losses(results: Results) -> str:
    """Say in how many tasks programs take more than direct calls, by measure."""
    columns = (("requests", _REQUESTS[1]), ("tokens in", _GIVEN[1]), ("these beside the tools", _BESIDE[1]))
    parts: list[str] = []
    for way in _COMPARED:
        worse = [
            f"{sum(measure(one[way]) > measure(one['direct']) for one in results.values())} for {label}"
            for label, measure in (*columns, ("tokens out", _WRITTEN[1]))
        ]
        parts.append(f"with {way} in {', '.join(worse)}")
    return f"More than by direct calls, of {len(results)} tasks: {'; '.join(parts)}."


def behind_search(results: Results) -> str:
    """Say what direct calls take in all of the tasks when their tools are searched as CodeCall's are."""
    counts = [one["direct, by search"] for one in results.values()]
    said = (f"{short(sum(map(measure, counts)))} {label}" for label, measure in (_REQUESTS, _GIVEN, _WRITTEN))
    return f"Direct calls of what CodeCall's search finds took, in all, {', '.join(said)}."


def put(page: Path, text: str) -> None:
    """Put a text between the marks of a page. Raises `ValueError` where it has none."""
    said = page.read_text(encoding="utf-8")
    before, begin, rest = said.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page} has no part between {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def rows_of(page: Path) -> dict[str, list[str]]:
    """Return the other cells of each row of the last table between a page's marks, by the row's first cell."""
    table = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().rpartition("\n\n")[2]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines[2:]}


def _rows(results: Results, ways: Sequence[str], columns: Sequence[tuple[str, Measure]]) -> Iterator[str]:
    yield f"| {' / '.join(ways)} | {' | '.join(label for label, _ in columns)} |"
    yield "| --- " * (len(columns) + 1) + "|"
    for task, by_way in results.items():
        cells = (" / ".join(short(measure(by_way[way])) for way in ways) for _, measure in columns)
        yield f"| {task} | {' | '.join(cells)} |"
    totals = (
        " / ".join(short(sum(measure(one[way]) for one in results.values())) for way in ways) for _, measure in columns
    )
    yield f"| **all** | {' | '.join(totals)} |"


def _sums(results: Results, ways: Sequence[str]) -> Iterator[str]:
    columns = (_REQUESTS, _GIVEN, _LISTED, _NEW, _WRITTEN)
    yield f"| all tasks | {' | '.join(label for label, _ in columns)} | the tools, each request |"
    yield "| --- " * (len(columns) + 2) + "|"
    for way in ways:
        counts = [one[way] for one in results.values()]
        cells = [f"{sum(map(measure, counts)):,}" for _, measure in columns]
        yield f"| {way} | {' | '.join(cells)} | {counts[0].listed // counts[0].requests:,} |"


def short(number: int) -> str:
    return (
        f"{number:,}" if number < 10_000 else f"{number / 1000:,.0f}k" if number > 99_949 else f"{number / 1000:.1f}k"
    )
