"""Which worker has another program: never beyond its number, of another share, or after an end that was not well."""

from __future__ import annotations

import asyncio
import os
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_fakes import DIES_READY, ENDS, GOOD, Seen, says
from suite import each_row
from waiting import until, within

from codemode import CodeModeError, PoolOptions, WorkerPool, run_code_mode
from codemode.execution import programs as known_programs
from codemode.options.parts import MAX_HEAP_BYTES
from codemode.protocol.framing import encode_frame
from codemode.testing.fake_worker import FakeWorker, FakeWorkerSource
from codemode.workers import worker_generations
from codemode.workers.process import MemoryUsage
from codemode.workers.worker_generations import WorkerReuseState
from codemode.workers.worker_inventory import IdleWorkers

MOST = 3
NO_MEMORY = MemoryUsage(0, 0)
FACTS = {"calls": [], "modules": [], "shadowed": False, "lists": False, "reads": []}
SHARES = ("", "a", "b", "a/b", "b/b", "b/b/b")  # the parts of a share behind it


def program(share: str, end: str) -> str:
    return f'return ["{share}", "{end}"]'


def part(pool: WorkerPool, share: str) -> WorkerPool:
    for name in filter(None, share.split("/")):
        pool = pool.share(name, max_workers=2)
    return pool


async def run_all(pool: WorkerPool, batches: list[list[tuple[str, str]]]) -> None:
    """Run the programs of each batch at once."""
    shares = {name: part(pool, name) for name in SHARES}

    async def run(share: str, end: str) -> None:
        with suppress(CodeModeError):
            await run_code_mode(program(share, end), (), pool=shares[share])

    for batch in batches:
        await asyncio.gather(*(run(*one) for one in batch))


def ran(batches: list[list[tuple[str, str]]], **options: Any) -> dict[int, list[tuple[int, str, str]]]:
    """Run them on workers that are threads; what each worker has run."""
    seen = Seen()
    wanted = {"max_workers": 3, "on_saturation": "wait", "spare_workers": 0, "programs_per_worker": MOST, **options}
    with WorkerPool(wanted, source=lambda: FakeWorkerSource(seen.script)) as pool:
        within(run_all(pool, batches))
        assert pool.active == 0
    found: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for worker, number, share, end in seen.programs:
        found[worker].append((number, share, end))
    return found


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(SHARES), st.sampled_from(ENDS)), min_size=1, max_size=4), max_size=6),
    st.sampled_from((0, 1)),
)
def test_no_worker_has_more_than_it_may(batches: list[list[tuple[str, str]]], spare_workers: int) -> None:
    found = ran(batches, spare_workers=spare_workers)
    assert sum(map(len, found.values())) == sum(map(len, batches))
    for programs in found.values():
        assert [number for number, _, _ in programs] == list(range(len(programs)))
        assert len(programs) <= MOST
        assert len({share for _, share, _ in programs}) == 1
        assert all(end in GOOD for _, _, end in programs[:-1])


def test_a_worker_that_ends_well_has_the_next_programs_of_its_share() -> None:
    found = ran([[("a", "good")]] * 4 + [[("b", "good")]] + [[("a", "good, in two writes")]] * 2)
    assert [[share for _, share, _ in programs] for programs in found.values()] == [["a"] * 3, ["a"] * 3, ["b"]]


@each_row("end", [end for end in ENDS if end not in GOOD])
def test_a_worker_that_does_not_has_no_other(end: str) -> None:
    found = ran([[("a", end)], [("a", "good")]])
    assert [[end for _, _, end in programs] for programs in found.values()] == [[end], ["good"]]


def test_a_worker_that_dies_while_it_waits_harms_no_program() -> None:
    seen, sources = Seen(), list[FakeWorkerSource]()

    def source() -> FakeWorkerSource:
        sources.append(FakeWorkerSource(seen.script))
        return sources[-1]

    with WorkerPool({"spare_workers": 0, "programs_per_worker": MOST}, source=source) as pool:
        within(run_code_mode(program("", DIES_READY), (), pool=pool))
        within(until(lambda: sources[0].living_count == 0))
        assert len(pool.supply.inventory.idle) == 1
        assert within(run_code_mode(program("", "good"), (), pool=pool)) == 1
    assert [worker for worker, *_ in seen.programs] == [0, 1]


def test_a_worker_whose_source_has_died_is_not_waited_for() -> None:
    seen, sources = Seen(), list[_MortalSource]()

    def source() -> FakeWorkerSource:
        sources.append(_MortalSource(seen.script))
        return sources[-1]

    with WorkerPool({"spare_workers": 0, "programs_per_worker": MOST}, source=source) as pool:
        within(run_code_mode(program("", "good"), (), pool=pool))
        assert len(pool.supply.inventory.idle) == 1
        sources[0].has_died = True
        assert within(run_code_mode(program("", "good"), (), pool=pool)) == 1
        within(until(lambda: sources[0].living_count == 0))
    assert [worker for worker, *_ in seen.programs] == [0, 1]


class _MortalSource(FakeWorkerSource):
    has_died = False

    def is_alive(self) -> bool:
        return not self.has_died


def test_by_default_each_has_one() -> None:
    defaults = {option.name: option.default for option in fields(PoolOptions)}
    assert (defaults["programs_per_worker"], defaults["allow_kept_workers"]) == (1, False)


def test_pools_of_tests_keep_workers_where_that_is_wanted() -> None:
    with WorkerPool() as pool:
        assert pool.options.programs_per_worker == int(os.environ.get("CODEMODE_PROGRAMS_PER_WORKER", "1"))


def test_a_share_that_is_closed_leaves_no_worker_waiting() -> None:
    seen = Seen()
    options = {"spare_workers": 0, "programs_per_worker": MOST}
    with WorkerPool(options, source=lambda: FakeWorkerSource(seen.script)) as pool:
        shares = [part(pool, name) for name in SHARES]
        for name, share in zip(SHARES, shares, strict=True):
            within(run_code_mode(program(name, "good"), (), pool=share))
        assert len(pool.supply.inventory.idle) == len(SHARES)
        part(pool, "b").close()
        left = ["/".join(worker.reuse.share) for worker in pool.supply.inventory.idle if worker.reuse is not None]
        assert left == ["", "a", "a/b"]


def test_options_of_kept_workers_are_checked() -> None:
    with pytest.raises(ValueError, match=r"pool\.programs_per_worker must be at most 64, got 65"):
        PoolOptions(programs_per_worker=65)
    with pytest.raises(ValueError, match='isolation="required" needs allow_kept_workers=True'):
        PoolOptions(programs_per_worker=2, isolation="required", allow_kept_workers=False)
    assert PoolOptions(programs_per_worker=2, isolation="required", allow_kept_workers=True).isolation == "required"


def test_time_and_memory_end_a_tenure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(worker_generations, "time", SimpleNamespace(monotonic=lambda: now))
    one = WorkerReuseState((), 50)
    for _ in range(3):
        assert one.record_program_end_and_check_reusable(b"", MemoryUsage(20 << 20, 40 << 20))
        one.try_begin_program()
    assert not one.record_program_end_and_check_reusable(b"", MemoryUsage(1 << 30, 1 << 30))
    assert not WorkerReuseState((), 50).record_program_end_and_check_reusable(b"", None)
    assert not WorkerReuseState((), 1).record_program_end_and_check_reusable(b"", NO_MEMORY)
    one = WorkerReuseState((), 50)
    now += 599
    assert one.record_program_end_and_check_reusable(b"", NO_MEMORY)
    now += 3600  # between programs nothing is counted
    one.try_begin_program()
    now += 2
    assert not one.record_program_end_and_check_reusable(b"", NO_MEMORY)


def test_the_next_program_may_have_the_largest_heap() -> None:
    most = worker_generations._MAX_ADDRESS_SPACE_BYTES
    assert WorkerReuseState((), 50).record_program_end_and_check_reusable(b"", MemoryUsage(0, most))
    assert not WorkerReuseState((), 50).record_program_end_and_check_reusable(b"", MemoryUsage(0, most + 1))
    lockdown = Path(worker_generations.__file__).parent.parent / "guest" / "linux_lockdown.py"
    limit = re.search(r"^_ADDRESS_SPACE_BYTES = (\d+) << (\d+)", lockdown.read_text(), re.MULTILINE)
    assert limit is not None
    assert (int(limit[1]) << int(limit[2])) - most >= MAX_HEAP_BYTES + (64 << 20)


def test_what_a_kept_worker_says_of_a_text_is_for_its_own_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_programs, "_programs", known_programs.make_program_cache())
    ran: list[str] = []

    def script(worker: FakeWorker) -> None:
        """Be a worker that its first program has taken over: it says something else of every later one."""
        worker.send_hello()
        for number in range(MOST):
            worker.receive_message()
            kind, body = worker.receive_message()
            if kind == b"A":
                worker.send_frame(b"a", {"js": body["source"] if number == 0 else "return 'planted'", "facts": FACTS})
                kind, body = worker.receive_message()
            ran.append(body["js"])
            worker.send_bytes(encode_frame(b"V", b'{"value": "1", "unobserved": []}') + says(number + 1))

    options = {"max_workers": 2, "spare_workers": 0, "programs_per_worker": MOST}
    with WorkerPool(options, source=lambda: FakeWorkerSource(script)) as pool:
        one, other = (pool.share(name, max_workers=1) for name in "ab")
        for share in (one, one, other, one, other):
            within(run_code_mode("return 'planned'" if ran else "return 'first'", (), pool=share))
    # The fourth runs on the same worker as the second; the third and the last are of another share.
    assert ran == ["return 'first'", "return 'planted'", "return 'planned'", "return 'planned'", "return 'planned'"]


def test_so_many_wait_and_the_oldest_makes_way() -> None:
    kept = IdleWorkers(2)
    workers: list[Any] = [_Worker(share) for share in ("a", "b", "a")]
    assert [kept.add(worker) for worker in workers] == [None, None, workers[0]]
    assert kept.take("c", has_spare=False) is None
    assert kept.take("a", has_spare=True) is workers[2]
    assert kept.remove_share_workers("b") == [workers[1]]
    assert len(kept) == 0


class _Worker:
    def __init__(self, share: str) -> None:
        self.reuse = SimpleNamespace(share=share, frame=b"N1")
