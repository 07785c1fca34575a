"""One worker runs program after program: nothing of one is in the next, nor what was meant for one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kernel_driver import LIMITS, MODULE, STRICT, Said, converse, echo
from leftovers import await_state, descriptors
from pool_driver import PoolMaker
from suite import each_row, full_only
from worker_driver import WAIT_MS, frame, read_frame, read_hello

from codemode import CodeModeError, Interrupt, Tool, WorkerPool, request_interrupt, run_code_mode, run_code_mode_sync
from codemode.protocol.messages import AnnounceNextProgram, RunModule, RunProgram
from codemode.workers import process as process_memory
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.process import WorkerProcess, spawn_worker_process
from codemode.workers.zygote import Zygote

PLANTING = (Path(__file__).parent / "planting.js").read_text(encoding="utf-8")
IMPORT = "const{0:imported}=$codemode;"
PLANTED = {
    "serverId": "desk",
    "serverName": "desk",
    "tools": [{"toolName": "ask", "exportName": "ask"}],
}
SEED = "5eed" * 8
MOST = 7
LONG = 1 << 18


class Kept:
    """One worker that runs more than one program, and no host."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.ended = 0

    def send(self, *frames: bytes) -> None:
        self.worker.channel.sendall(b"".join(frames))

    def begin(self) -> bytes:
        return AnnounceNextProgram(self.ended).to_frame()

    def run(self, program: bytes) -> Said:
        """Run a program to its end, and await that the worker is ready for another."""
        self.send(self.begin(), program)
        said = converse(self.worker, echo)
        self.ended += 1
        assert read_frame(self.worker) == (b"N", b"%d" % self.ended)
        return said


def script(js: str, **more: Any) -> bytes:
    return RunProgram(js, {**STRICT, **LIMITS, "seed": SEED, **more}).to_frame()


def module(js: str) -> bytes:
    told: dict[str, Any] = {
        "given": {
            "module": {
                "prefix": len(IMPORT),
                "take": "$codemode",
                "imports": ["@codemode/servers/desk"],
                "servers": {"desk": PLANTED},
                "all": False,
            }
        }
    }
    return RunModule(IMPORT + js, {**MODULE, **LIMITS, "seed": SEED, **told}).to_frame()


def forked(zygote: Zygote) -> WorkerProcess:
    """Return a worker with as many engines as it may have: those before were forked before there were any."""
    for _ in range(200):
        worker = zygote.spawn(warm_up=False)
        kept = Kept(worker)
        read_hello(worker)
        with suppress(EOFError):
            for _ in range(MOST - 1):
                kept.run(script("return 1"))
            worker.close()
            worker = zygote.spawn(warm_up=False)
            read_hello(worker)
            return worker
        worker.close()
    raise AssertionError("the zygote has made no engines")


@pytest.fixture(scope="module", params=["fork", *full_only("exec")])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], WorkerProcess]]:
    """Make workers that run so many programs."""
    image = WorkerImage.from_installed(GUEST_RUNTIME)
    if request.param == "exec":

        def start() -> WorkerProcess:
            worker = spawn_worker_process(image, isolation_required=False, programs_per_worker=MOST)
            read_hello(worker)
            return worker

        yield start
    else:
        zygote = Zygote(image, programs_per_worker=MOST)
        yield lambda: forked(zygote)
        zygote.kill()


@pytest.fixture
def kept(make: Callable[[], WorkerProcess]) -> Iterator[Kept]:
    worker = make()
    yield Kept(worker)
    worker.kill()
    assert worker.wait_until_dead(WAIT_MS)
    worker.close()


FACES: dict[str, Callable[[str], bytes]] = {
    "script": lambda expression: script(PLANTING + f"return {expression};"),
    "sloppy": lambda expression: script(PLANTING + f"return {expression};", wrapper="sloppy"),
    "module": lambda expression: module(PLANTING + f"globalThis.__codemode_result__ = {expression};"),
}


def looked(kept: Kept, face: str) -> tuple[Any, list[Any]]:
    """Return what a program finds in its engine, and what the host hears of it beside that."""
    said = kept.run(FACES[face]("look()"))
    assert said.value["left"] == []
    assert set(said.value["memory"]) <= {True, None}
    return said.value, said.frames


def test_nothing_that_a_program_plants_is_ever_found(kept: Kept) -> None:
    before = {looker: looked(kept, looker) for looker in ("script", "module")}
    for planter, looker in (("sloppy", "script"), ("module", "module")):
        assert kept.run(FACES[planter]("plant()")).value == [True, True]
        assert looked(kept, looker) == before[looker]


STATUS = ("Name", "State", "Uid", "Gid", "Groups", "Threads", "NoNewPrivs", "Seccomp", "Seccomp_filters")
MASKS = ("SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def process(pid: int) -> dict[str, Any]:
    """Return what the system tells of a process that a program could change, if it could change anything."""
    folder = Path(f"/proc/{pid}")
    await_state(pid, "S")  # what it has said is heard before it waits again
    lines = (line.partition(":") for line in (folder / "status").read_text().splitlines())
    found: dict[str, Any] = {name: value for name, _, value in lines if name in STATUS + MASKS}
    found["limits"] = (folder / "limits").read_text()
    found["names"] = [(folder / name).read_bytes() for name in ("comm", "cmdline")]
    with suppress(PermissionError):  # for who may not look into another user's process
        found["environment"] = (folder / "environ").read_bytes()
        found["descriptors"] = descriptors(pid)
        found["executable"] = [line for line in (folder / "maps").read_text().splitlines() if "x" in line.split()[1]]
    return found


def test_its_process_stays_as_it_was(kept: Kept) -> None:
    assert kept.run(script("return 1")).value == 1
    assert not kept.worker.wait_until_dead(0)
    pid = process_memory._read_pid(kept.worker._handle.pidfd)
    before = process(pid)
    for planter in ("sloppy", "module"):
        kept.run(FACES[planter]("plant()"))
        assert process(pid) == before


def test_what_was_meant_for_a_program_reaches_no_other(kept: Kept) -> None:
    first = "const calls = [tools.a({}), tools.b({})]; return await Promise.race(calls);"
    kept.run(script(first))
    late = (
        frame(b"D", json.dumps({"id": 2, "now": 1, "value": "late"})),
        frame(b"D", json.dumps({"id": 1, "now": 99_999, "value": "late"})),
        frame(b"S", "late"),
        frame(b"S", "L" * LONG),
        frame(b"T", "\0\0\1\0"),
        frame(b"A", "\0\0\0\1\0return 'late'"),
        frame(b"Z", "late"),
        AnnounceNextProgram(0).to_frame(),
        script("return 'late'"),
        AnnounceNextProgram(2).to_frame(),
        script("return 'later'"),
        frame(b"N", "\0\0\1"),
        frame(b"N", "\0\0\0\0\1"),
    )
    kept.send(*late)
    said = kept.run(script("return [await tools.a({ n: 1 }), Date.now()]"))
    assert said.value == [{"n": 1}, 1000]
    assert [(kind, body.get("id")) for kind, body in said.frames] == [("C", 1), ("T", None)]


def test_a_worker_ends_after_its_last_program(kept: Kept) -> None:
    for _ in range(MOST - 1):
        assert kept.run(script("return 1")).value == 1
    kept.send(kept.begin(), script("return 2"))
    assert converse(kept.worker, echo).value == 2
    with pytest.raises(EOFError):
        read_frame(kept.worker)


def test_a_worker_that_fails_has_no_other_program(kept: Kept) -> None:
    kept.send(kept.begin(), frame(b"Z", "what is this"))
    assert read_frame(kept.worker)[0] == b"F"
    with pytest.raises(EOFError):
        read_frame(kept.worker)


# --- with a host ---


def filling(megabytes: int) -> str:
    return f"globalThis.kept = new Uint8Array({megabytes} << 20).fill(1); return 1;"


async def nothing() -> None: ...


async def paused() -> None:
    request_interrupt({"kind": "planted"})


ENDINGS: dict[str, tuple[str, dict[str, int]]] = {
    "thrown": ("throw new Error('no')", {}),
    "out of time": ("for (;;);", {"timeout_ms": 200}),
    "out of memory": ("const all = []; for (;;) all.push(new Array(1e5).fill(all.length))", {}),
    "a call left behind": ("tools.nothing(); return 1", {}),
    "too large": ("return 'x'.repeat(3000)", {"max_result_bytes": 1000}),
    "paused": ("return await tools.paused()", {}),
    "a lot of memory left": (filling(140), {"memory_limit_bytes": 256 << 20}),
    "a lot of memory left that was not touched": (
        "globalThis.kept = new ArrayBuffer(200 << 20); return 1;",
        {"memory_limit_bytes": 256 << 20},
    ),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """A pool of one worker, which has had several programs."""
    with WorkerPool({"max_workers": 1, "spare_workers": 0, "programs_per_worker": 20}) as pool:
        yield pool


def tenures(pool: WorkerPool) -> list[int]:
    return [worker.reuse.program_count for worker in pool.supply.inventory.idle if worker.reuse is not None]


def used(pool: WorkerPool) -> None:
    """Run programs until one worker has had two."""
    for _ in range(200):
        assert run_code_mode_sync("return 1", {}, pool=pool) == 1
        if tenures(pool)[:1] > [1]:
            return
    raise AssertionError("no worker is kept")


@each_row("ending", ENDINGS)
def test_only_a_good_end_keeps_a_worker(pool: WorkerPool, ending: str) -> None:
    used(pool)
    js, policy = ENDINGS[ending]
    tools = [Tool("nothing", execute=nothing), Tool("paused", execute=paused)]
    with suppress(CodeModeError):
        found = run_code_mode_sync(js, tools, options={"execution_policy": policy}, pool=pool)
        assert found == 1 or isinstance(found, Interrupt)
    assert tenures(pool) == []
    assert run_code_mode_sync("return typeof kept", {}, pool=pool) == "undefined"


def test_a_kept_worker_is_locked_as_every_other(pool: WorkerPool, make_pool: PoolMaker) -> None:
    used(pool)
    plain = make_pool(programs_per_worker=1, allow_kept_workers=False)
    assert run_code_mode_sync("return 1", {}, pool=plain) == 1
    assert str(pool.isolation) == str(plain.isolation)
    required = make_pool(programs_per_worker=2, isolation="required", allow_kept_workers=True)
    assert run_code_mode_sync("return 1", {}, pool=required) == 1


def test_many_at_once_give_each_its_own(leaves_nothing: None, make_pool: PoolMaker) -> None:
    assert leaves_nothing is None  # and looks when the pool is closed
    pool = make_pool(max_workers=4, on_saturation="wait", programs_per_worker=5)

    async def echo(n: int) -> int:
        return n

    async def run(number: int) -> Any:
        js = f"globalThis.mark ??= {number}; return [mark, await tools.echo({{ n: {number} }})]"
        return await run_code_mode(js, [echo], pool=pool)

    async def main() -> list[Any]:
        return await asyncio.gather(*(run(number) for number in range(60)))

    assert asyncio.run(main()) == [[number, number] for number in range(60)]
    assert all(programs < 5 for programs in tenures(pool))
