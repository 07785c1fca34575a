"""The benchmarks run, and say what they should; no time is judged here."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from leftovers import read_line
from suite import IS_FULL

ROOT = Path(__file__).parents[2]
WORKLOADS = [
    "W0",
    "W1",
    "W2",
    "W2u",
    "W3",
    "W4",
    "W5",
    "W6",
    "W7",
    "W8",
    "W9",
    "W10",
    "W11",
    "W12",
    "W13",
    "W14",
    "W15",
    "W16",
    "W17",
    "W18",
    "W19",
    "W22",
]
WAIT_SECONDS = 240


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a part of the benchmarks, which are no installed package."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def benchmark(*arguments: str, entry: tuple[str, str] = ("-m", "benchmarks.run")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *entry, "--rounds", "1", "--runs", "1", "--seconds", "0.1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS)


# Sizes that show as well that a workload runs: a catalog of a hundred tools, no second database.
SMALL = """
from benchmarks import heartbeat, search_updates, stores
heartbeat.WARM_UP_SECONDS, heartbeat._SEARCHES, search_updates.COUNT = 0.1, 1, 100
stores.own_cluster = lambda _stack: None
from benchmarks.run import main
main()
"""


@pytest.mark.full
def test_every_workload_gives_figures():
    done = benchmark("--json", entry=("-m", "benchmarks.run") if IS_FULL else ("-c", SMALL))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert list(dict.fromkeys(row["name"] for row in rows)) == WORKLOADS
    for row in rows:
        assert row["ours"] is not None or "not measured" in row["note"], row
    against_floor = [row for row in rows if row["name"] in {"W1", "W2", "W2u", "W3", "W4", "W6", "W7"}]
    assert all(row["floor"] > 0 and row["ratio"] > 0 and row["asyncio_ratio"] > 0 for row in against_floor)


@pytest.mark.full
def test_the_table_has_a_line_for_each_workload():
    done = benchmark("--only", "W1,W9")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("W") and ": " not in line] == ["W1", "W9", "W9", "W9"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["steps", "W2", "--runs", "20"], "took these steps"),
        (["cpu", "W2", "2", "--seconds", "0.3"], "runs/s of W2 with 2 in flight"),
    ],
)
def test_a_profile_accounts_for_a_run(arguments: list[str], said: str):
    if arguments[0] == "cpu" and sys.platform != "linux":
        pytest.skip("only Linux tells what other processes used")
    command = [sys.executable, "-m", "benchmarks.profile", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.full
def test_two_commits_are_compared_row_by_row(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    compare, rows = module("compare"), dict[Path, Any]()
    measured = compare.measured

    def once(side: Path, *options: list[str]) -> Any:
        """The rows of a side, which in a second round are those of the first."""
        return rows[side] if side in rows else rows.setdefault(side, measured(side, *options))

    monkeypatch.setattr(compare, "measured", once)
    assert compare.main(["HEAD", "--rounds", "2", "--runs", "1", "--only", "W9"]) in (0, 1)
    assert len(rows) == 2
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["W9", "W9", "W9"]


@pytest.mark.parametrize(
    ("unit", "before", "after", "is_slower"),
    [
        ("ms", [1.0, 1.1, 1.2, 1.1], [1.3, 1.4, 1.5, 1.4], True),
        ("ms", [1.0, 1.1, 1.2, 1.1], [1.1, 1.2, 1.3, 1.2], False),
        ("ms", [1.0, 1.0, 1.0, 1.0], [1.04, 1.04, 1.04, 1.04], False),
        ("ms", [1.3, 1.4, 1.5, 1.4], [1.0, 1.1, 1.2, 1.1], False),
        ("runs/s", [900.0, 910.0, 905.0, 900.0], [700.0, 710.0, 705.0, 700.0], True),
        ("runs/s", [700.0, 710.0, 705.0, 700.0], [900.0, 910.0, 905.0, 900.0], False),
    ],
)
def test_a_row_is_slower_when_the_middle_halves_lie_apart(
    module: Any, unit: str, before: list[float], after: list[float], is_slower: bool
):
    compared = module("compare").Compared(unit, {"before": before, "after": after})
    assert compared.is_slower is is_slower


@pytest.mark.full
def test_catalogs_and_waiting_runs_are_measured(module: Any, monkeypatch: pytest.MonkeyPatch):
    catalogs, waiting = module("exec_wait_catalogs"), module("exec_wait")
    monkeypatch.setattr(catalogs, "_RUNS", 1)
    monkeypatch.setattr(waiting, "CALLS", (0, 2))
    monkeypatch.setattr(waiting, "_HELD_COLD", 2)
    (line,) = asyncio.run(catalogs.lines((1,)))
    assert line.count(" late)") == 4
    assert [one.split(":")[0].strip() for one in asyncio.run(waiting.sizes())[:3]] == [
        "0 calls",
        "2 calls",
        "a recorded small call",
    ]


def test_pages_of_the_console_are_measured(module: Any, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("codemode_console")
    console = module("console")
    monkeypatch.setattr(console, "own_cluster", lambda _stack: None)
    rows = asyncio.run(console.console_rows(300, 0))
    assert [row.what for row in rows] == [f"{page}, SQLite" for page in console._PAGES]
    assert all(row.ours > 0 and row.floor > 0 for row in rows)
    assert all(int(re.search(r"([0-9]+) queries", row.note)[1]) <= 8 for row in rows)


@pytest.mark.full
def test_the_gateway_is_measured_against_direct_use(module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    gateway = module("gateway")
    monkeypatch.setattr(gateway, "SDK", gateway.STDLIB)
    monkeypatch.setattr(gateway, "PYTHON", tmp_path / "none")
    bench = gateway.Bench(tmp_path, calls=3, servers=2, seconds=0.0)
    left = ["by proxy"]
    if not IS_FULL:
        monkeypatch.setattr(bench, "_starting", lambda: None)
        monkeypatch.setattr(bench, "_resuming", AsyncMock())
        left += ["first tools/list", "servers that sleep", "resuming"]
    asyncio.run(bench.measure(1, untimed=0))
    rows = {row.what: row for row in bench.rows()}
    assert len(rows) == len(gateway.PAIRS)
    without = {what for what, row in rows.items() if row.ratio is None}
    assert without == {what for what in rows if any(one in what for one in left)}
    assert all(row.ours > 0 and row.floor > 0 for row in rows.values() if row.ratio is not None)


def test_what_a_client_of_the_gateway_is_given_is_counted(module: Any):
    gateway = module("gateway")
    servers = gateway.prompts.servers_of_the_sample()
    given = asyncio.run(gateway.given_at_start(servers))
    start, looked_up = gateway.token_rows_of(servers, given, (None, None))
    assert 0 < start.ours < looked_up.ours < start.floor


def test_an_unknown_workload_is_refused(module: Any, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        module("run").main(["--only", "W99"])
    assert ended.value.code == 2
    assert "W99" in capsys.readouterr().err


def test_a_verdict_is_shown_beside_its_target(module: Any):
    table = module("table")
    rows = [
        table.Row("A", "a", ours=1.0, target="<= 2x", met=True),
        table.Row("B", "b", ours=3.0, target="<= 2x", met=False),
    ]
    text = table.table(rows)
    assert "<= 2x (met)" in text
    assert "<= 2x (not met)" in text


def test_the_memory_of_a_family_counts_its_children(module: Any):
    processes = module("processes")
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; print(1, flush=True); sys.stdin.read()'],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)\nsys.stdin.read()\n"
        "child.stdin.close()\nchild.wait()\nchild.stdout.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(read_line(parent.stdout))
        assert set(processes.family(parent.pid)) == {parent.pid, child}
        assert processes.pss_mib(parent.pid) > processes.pss_mib(child) > 0
        parent.communicate("", timeout=30)


@pytest.mark.parametrize("dialect", ["_called_by_name", "_called_through_call_tool"])
def test_programs_in_python_give_what_those_in_javascript_give(module: Any, dialect: str):
    write = getattr(module("peers.sandboxes"), dialect)
    programs = module("programs")
    for program in programs.PROGRAMS:
        assert asyncio.run(run_python(write(program.python), programs.rows())) == program.expected, program.name


async def run_python(text: str, rows: list[Any]) -> Any:
    """Run a program as the peers do: its last expression, or what it returns, is its value."""

    async def noop(n: int) -> int:
        return n

    async def all_rows() -> list[Any]:
        return rows

    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        return {"result": await {"noop": noop, "rows": all_rows}[name](**arguments)}

    indented = "async def program():\n" + "\n".join(f"    {line}" for line in text.splitlines())
    tree = ast.parse(indented)
    (function,) = tree.body
    assert isinstance(function, ast.AsyncFunctionDef)
    if isinstance(last := function.body[-1], ast.Expr):
        function.body[-1] = ast.Return(last.value)
    scope: dict[str, Any] = {"noop": noop, "rows": all_rows, "call_tool": call_tool}
    exec(compile(ast.fix_missing_locations(tree), "program", "exec"), scope)
    return await scope["program"]()


@pytest.mark.parametrize("lacks", ["FRONTMCP", "ENCLAVE", "node"])
def test_without_what_it_takes_the_published_plugin_is_not_asked(
    module: Any, lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answers = module("peers.codecall_answers")
    before = answers.ANSWERS.read_bytes()
    for name, folder in answers.NEEDED.items():
        if name != lacks:
            (tmp_path / name / folder).mkdir(parents=True)
    monkeypatch.setattr(answers.shutil, "which", lambda name: None if name == lacks else f"/no/such/{name}")
    assert answers.main([str(tmp_path / "FRONTMCP"), str(tmp_path / "ENCLAVE"), "--write"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("skipped: ")
    assert lacks in said
    assert answers.ANSWERS.read_bytes() == before
