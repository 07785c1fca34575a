"""The tasks of `make bench-tokens`: programs run, and know what direct calls know; the tables are about them."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from suite import each_row, full_only

from codemode import CodeModeToolError, WorkerPool

ROOT = Path(__file__).parents[2]
TASKS = 21
SMALL_TASKS = 6
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """Import a part of the benchmarks, which are no installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))

        def imported(name: str) -> ModuleType:
            return importlib.import_module(f"benchmarks.tokens.{name}")

        yield imported


@pytest.fixture(scope="module")
def ways(module: Any) -> Iterator[Any]:
    pool = WorkerPool()
    yield module("ways").Ways(pool, timeout_ms=60_000)
    pool.close()


@pytest.fixture(scope="module")
def api_ways(module: Any) -> Iterator[Any]:
    pool = WorkerPool()
    yield module("ways").Ways(pool, timeout_ms=60_000, catalog=module("api_catalog").ApiCatalog())
    pool.close()


@each_row("at", [*range(0, TASKS, 5), *full_only(*(at for at in range(TASKS) if at % 5))])
def test_each_way_knows_the_same_in_the_end_in_as_many_requests_as_the_tables_say(
    module: Any, ways: Any, api_ways: Any, at: int
):
    task, report = module("tasks").TASKS[at], module("report")

    async def played() -> dict[str, Any]:
        by_name = (api_ways if task.is_of_api else ways).by_name()
        return {name: (await way(task), await written(ways)) for name, way in by_name.items()}

    found = asyncio.run(played())
    direct, file = found["direct"]
    assert direct.data
    assert all((one.data, its) == (direct.data, file) for one, its in found.values())
    assert len({one.transcript.turns[-1].written for one, _ in found.values()}) == 1
    counts = {name: str(len(one.transcript.turns)) for name, (one, _) in found.items()}
    assert report.rows_of(report.PAGE)[task.name][0] == " / ".join(counts.values())


async def written(ways: Any) -> Any:
    """The file that one of the tasks writes, as its text; of the others, that it is not there."""
    found = await ways.catalog.direct("filesystem_read_text_file", {"path": "/srv/shop/reports/closed-2026-10.csv"})
    return str(found)


def test_the_table_has_all_tasks_and_their_sum(module: Any):
    tasks, report = module("tasks").TASKS, module("report")
    assert len(tasks) == TASKS
    assert len(module("catalog").listed()) == 152
    rows = report.rows_of(report.PAGE)
    assert list(rows) == [*(task.name for task in tasks), "**all**"]
    requests = [[int(count) for count in cells[0].split(" / ")] for cells in rows.values()]
    assert requests.pop() == [sum(column) for column in zip(*requests, strict=True)]


def test_tokens_of_a_conversation_are_those_of_all_its_requests(module: Any):
    transcripts = module("transcript")
    transcript = transcripts.Transcript("tools" * 20, "why?")
    transcript.call(("one", {"a": 1}, "x" * 50), ("two", {}, "y"))
    transcript.answer("so")
    counted = transcripts.counted(transcript, {text: len(text) for text in transcript.texts()})
    marks = transcripts.MARKS
    first = 100 + len(transcripts.SYSTEM) + 4 + 2 * marks
    calls = len('{"name":"one","arguments":{"a":1}}') + len('{"name":"two","arguments":{}}') + 2 * marks
    second = first + calls + 51 + 2 * marks
    assert (counted.requests, counted.given, counted.listed) == (2, first + second, 200)
    assert counted.beside_tools == first + second - 200
    assert counted.new == second
    assert counted.written == calls + 2 + marks


def test_losses_are_counted_by_measure(module: Any):
    report, counted = module("report"), module("transcript").Counted
    small = counted(requests=2, given=100, listed=40, new=60, written=10)
    large = counted(requests=3, given=90, listed=20, new=60, written=10)
    said = report.losses({"a": {"direct": small, "codeMode": small, "CodeCall": large}})
    assert "with codeMode in 0 for requests, 0 for tokens in, 0 for these beside the tools, 0 for tokens out" in said
    assert "with CodeCall in 1 for requests, 0 for tokens in, 1 for these beside the tools, 0 for tokens out" in said


def test_the_sum_behind_a_search_is_said(module: Any):
    report, counted = module("report"), module("transcript").Counted
    one = counted(requests=4, given=6_000, listed=40, new=60, written=10)
    said = report.behind_search({name: {"direct, by search": one} for name in "ab"})
    assert said.endswith(" took, in all, 8 requests, 12.0k tokens in, 20 tokens out.")


def test_small_calls_are_among_the_tasks_and_programs_lose_them(module: Any):
    """What programs lose stands in the table: those tasks take more tokens out than direct calls."""
    report = module("report")
    small = list(report.rows_of(report.PAGE).items())[:SMALL_TASKS]
    for name, cells in small:
        direct, _, code_mode, _, code_call = (int(one.replace(",", "")) for one in cells[3].split(" / "))
        assert direct < code_mode < code_call, name


def test_only_what_is_between_the_marks_is_written(module: Any, tmp_path: Path):
    report, page = module("report"), tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.put(page, "| a |\n| --- |\n| b | 1 |")
    assert page.read_text() == f"before\n{report.BEGIN}\n\n| a |\n| --- |\n| b | 1 |\n\n{report.END}\nafter\n"
    assert report.rows_of(page) == {"b": ["1"]}
    page.write_text("nothing")
    with pytest.raises(ValueError, match="has no part between"):
        report.put(page, "new")


def test_what_no_server_would_take_and_no_search_finds_is_refused(module: Any, ways: Any):
    task = module("tasks").Task(
        name="lost",
        question="?",
        direct=lambda: iter(()),
        programs=["return await tools.time_convert_time({});"],
        searches=[["merge a pull request"]],
        answer=str,
    )
    with pytest.raises(LookupError, match=r"do not find \['time_convert_time'\]"):
        asyncio.run(ways.code_call(task))
    with pytest.raises(CodeModeToolError, match="time_convert_time"):
        asyncio.run(ways.catalog.direct("time_convert_time", {"time": "09:30"}))


def test_the_second_use_of_a_saved_program_is_one_line(module: Any):
    pool = WorkerPool()
    try:
        found = asyncio.run(module("saved").played_again(pool))
    finally:
        pool.close()
    assert [len(one.turns) for one in found.values()] == [2, 2]
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for task in found:
        said = re.search(rf"(\d+) \({task}\)", page)
        assert said is not None, task
        assert int(said[1]) <= module("saved").MAX_TOKENS_OUT, task
