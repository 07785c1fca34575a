"""The tables of options name every option, with the default that it has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from suite import each_row
from waiting import within

from codemode import (
    ApprovalPolicy,
    ContinuationOptions,
    ExecutionPolicy,
    FetchPolicy,
    Lifecycle,
    ModelOutput,
    Pipeline,
    PoolOptions,
    Telemetry,
    Tool,
    create_exec_wait_tools,
)
from codemode.surfaces.exec_wait.options import PAIR_LIMITS

DOCS = Path(__file__).parents[2] / "docs"
OPTIONS, POOLS = (DOCS / "options.md").read_text(encoding="utf-8").split("\n## Worker pools\n")
PARTS = [
    ExecutionPolicy, FetchPolicy, ApprovalPolicy, Pipeline, Lifecycle, Telemetry, ModelOutput, ContinuationOptions,
]  # fmt: skip
UNITS = {"": 1, "KiB": 1024, "MiB": 1024 * 1024}


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Give each option with a row of its own, and what the page says of its default."""
    for name, default in re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", page, re.MULTILINE):
        yield name, default.strip()


def means(said: str) -> Any:
    """Return the value that a cell stands for; the cell where it is in words."""
    number = re.fullmatch(r"([\d,]+) ?(\w*)", said)
    if number and number[2] in UNITS:
        return int(number[1].replace(",", "")) * UNITS[number[2]]
    words = {"none": None, "`True`": True, "`False`": False}
    return words.get(said, said.strip('`"'))


@each_row("part", PARTS, ids=lambda part: part.path)
def test_the_page_names_every_option(part: type[Any]):
    # Those of one row share their path, and hooks and summaries their beginning.
    shared = {"lifecycle": "on_", "model_output": "include_"}.get(part.path, "")
    names = [option.name.removeprefix(shared) for option in fields(part)]
    text = "\n".join(line for line in OPTIONS.splitlines() if f"`{part.path}" in line)
    assert [name for name in names if not re.search(rf"\b{name}`", text)] == []


def test_the_page_says_what_exec_and_wait_do_not_read():
    said = re.search(
        r"own options replace `execution_policy\.(.*?)\. `execution_policy\.timeout_includes_tools`", OPTIONS, re.DOTALL
    )
    described = {"listing": "names", "max_description_characters": 300}
    assert said
    assert {*re.findall(r"(\w+)`(?=[ ,])", said[1])} == {*PAIR_LIMITS, *described}

    def add(a: int, b: int) -> int:
        return a + b

    pairs = [create_exec_wait_tools([add], settings={"execution_policy": one}) for one in ({}, described)]
    assert pairs[0].exec.description == pairs[1].exec.description


def test_what_a_run_that_waits_takes_for_a_call_is_as_the_page_says():
    (said,) = re.findall(r"some (\d+) for a small call", POOLS)
    reached = asyncio.Event()

    async def slow(_input: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    pair = create_exec_wait_tools({"add": lambda: 1, "slow": Tool("slow", execute=slow)}, {"waitTimeoutMs": 100})

    async def taken(calls: int) -> int:
        code = f"for (let at = 0; at < {calls}; at++) await tools.add(); await tools.slow();"
        answer = await pair.exec.execute({"code": code})
        while not reached.is_set():  # on a busy machine an answer comes before all calls are made
            assert answer["status"] == "waiting"
            answer = await pair.wait.execute({"runId": answer["runId"]})
        reached.clear()
        (run,) = (one for one in pair.runs() if one.state == "waiting")
        await pair.abort(run_id=run.run_id)
        return run.bytes

    async def main() -> float:
        few, many = await taken(1), await taken(101)
        await pair.aclose()
        return (many - few) / 100

    assert int(said) == pytest.approx(within(main()), rel=0.25)


def test_the_page_of_pools_names_every_option_of_one():
    assert {name for name, _ in rows(POOLS)} == {option.name for option in fields(PoolOptions)}


def test_defaults_are_as_the_page_says():
    known = {f"{part.path}.{option.name}": getattr(part(), option.name) for part in PARTS for option in fields(part)}
    told = {name: means(said) for name, said in rows(OPTIONS) if name in known}
    in_words = {"execution_policy.on_saturation", "fetch_policy.allowed_origins", "fetch_policy.allowed_methods"}
    in_words |= {"fetch_policy.fetch"}
    compared = {name: value for name, value in told.items() if name not in in_words}
    assert len(compared) >= 7
    assert compared == {name: known[name] for name in compared}


def test_defaults_of_a_pool_are_as_the_page_says():
    in_words = {"max_workers", "worker_command"}
    told = {name: means(said) for name, said in rows(POOLS) if name not in in_words}
    assert told == {name: getattr(PoolOptions(), name) for name in told}
