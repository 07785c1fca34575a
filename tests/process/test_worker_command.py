"""Hosts whose interpreter is part of an application: what starts their workers, without starting it again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from leftovers import children, no_orphan_left, nothing_left
from suite import full_only

from codemode import WorkerPool, run_code_mode_sync
from codemode.errors import CodeModeWorkerError
from codemode.workers import worker_generations as source
from codemode.workers.process import WORKER_ENVIRONMENT_VARIABLE, resolve_interpreter_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers do not run there")

_SOURCE = Path(__file__).parents[2] / "src"
_START_METHODS = ("fork", *full_only("exec"))

# An application with Python inside: whatever its arguments are, it starts itself, as a frozen program does. Every
# start adds a line to a file; the first one sets a bound on the damage.
APPLICATION = """
import os, resource, sys
log = {log!r}
with open(log, "a") as starts:
    starts.write(f"{{os.getpid()}} {{os.getppid()}}\\n")
if len(open(log).readlines()) > 20:
    os._exit(1)
sys.path[:0] = {paths!r}
sys.executable = {executable!r}
import codemode.errors
pool = codemode.WorkerPool({options!r})
try:
    print(codemode.run_code_mode_sync("return 6 * 7", (), pool=pool), flush=True)
except codemode.errors.CodeModeWorkerError as error:
    print("refused:", error.message, flush=True)
"""


@pytest.fixture
def make_pool() -> Iterator[Any]:
    made: list[WorkerPool] = []

    def make(**options: Any) -> WorkerPool:
        made.append(WorkerPool(options))
        return made[-1]

    with nothing_left(), no_orphan_left():
        yield make
        for pool in made:
            pool.close()


def one(pool: WorkerPool) -> Any:
    return run_code_mode_sync("return 6 * 7", (), pool=pool)


def executable_file(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
    return str(path)


def emulate_embedding(monkeypatch: pytest.MonkeyPatch, how: str, folder: Path) -> None:
    """Make this interpreter look like one inside of an application."""
    if how == "uwsgi":
        monkeypatch.setitem(sys.modules, "uwsgi", ModuleType("uwsgi"))
    elif how == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif how in ("none", "empty"):
        monkeypatch.setattr(sys, "executable", None if how == "none" else "")
    else:
        monkeypatch.setattr(sys, "executable", executable_file(folder / "uwsgi-core", "#!/bin/sh\nexit 1\n"))


EMBEDDINGS = {
    "uwsgi": "embedded in uWSGI",
    "frozen": "the application is frozen",
    "none": "sys.executable is empty",
    "empty": "sys.executable is empty",
    "another name": "'uwsgi-core', which is not a Python interpreter",
}


@pytest.mark.parametrize("start_method", _START_METHODS)
@pytest.mark.parametrize("how", EMBEDDINGS)
def test_an_embedded_interpreter_is_refused_and_the_error_says_what_to_set(
    make_pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, start_method: str
) -> None:
    emulate_embedding(monkeypatch, how, tmp_path)
    before = children()
    with pytest.raises(CodeModeWorkerError, match="worker_command") as caught:
        one(make_pool(start_method=start_method))
    assert EMBEDDINGS[how] in caught.value.message
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    assert version in caught.value.message
    assert children() == before


@pytest.mark.parametrize("start_method", ["fork", *full_only("exec")])
@pytest.mark.parametrize("how", ["uwsgi", "none", *full_only("frozen", "empty", "another name")])
def test_an_embedded_interpreter_works_with_a_command(
    make_pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, start_method: str
) -> None:
    command = (sys.executable,)
    emulate_embedding(monkeypatch, how, tmp_path)
    pool = make_pool(start_method=start_method, worker_command=command, isolation="required")
    assert [one(pool) for _ in range(3)] == [42, 42, 42]


def test_a_command_of_several_words_is_used_as_it_is(make_pool: Any, tmp_path: Path) -> None:
    wrapper = executable_file(
        tmp_path / "wrapper", f'#!/bin/sh\n[ "$1" = run ] || exit 9\nshift\nexec {sys.executable} "$@"\n'
    )
    assert one(make_pool(worker_command=[wrapper, "run"])) == 42
    with pytest.raises(CodeModeWorkerError):
        one(make_pool(worker_command=[wrapper, "stroll"]))


def test_a_link_to_an_interpreter_may_have_any_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link = tmp_path / "my-application"
    link.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(link))
    assert resolve_interpreter_command(()) == (str(link),)


@pytest.mark.parametrize("start_method", _START_METHODS)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["/nonexistent/python3"], id="absent"),
        pytest.param(["/bin/true"], id="ends", marks=pytest.mark.full),
        pytest.param(["/bin/false"], id="fails"),
        pytest.param(
            [sys.executable, "-c", "raise SystemExit('no worker')"], id="other program", marks=pytest.mark.full
        ),
    ],
)
def test_a_command_that_starts_no_worker_is_an_error(make_pool: Any, command: list[str], start_method: str) -> None:
    pool = make_pool(start_method=start_method, worker_command=command)
    for _ in range(2):
        with pytest.raises(CodeModeWorkerError):
            one(pool)
    assert pool.active == 0


@pytest.mark.parametrize("start_method", _START_METHODS)
@pytest.mark.parametrize(
    "says",
    [
        pytest.param("import time; time.sleep(600)", id="nothing"),
        pytest.param("import os; [os.write(n, b'HTTP/1.1 200 OK') for n in range(3, 20)]", id="no frame"),
    ],
)
def test_a_command_that_says_no_hello_is_given_up_in_bounded_time(
    make_pool: Any, monkeypatch: pytest.MonkeyPatch, says: str, start_method: str
) -> None:
    monkeypatch.setattr(source, "_HELLO_SECONDS", 0.3)
    script = f"import contextlib\nwith contextlib.suppress(OSError): exec({says!r})"
    pool = make_pool(start_method=start_method, worker_command=[sys.executable, "-c", script])
    with pytest.raises(CodeModeWorkerError):
        one(pool)


@pytest.mark.parametrize(
    ("disguised", "start_method"), [(True, "fork"), *full_only((False, "fork"), (True, "exec"), (False, "exec"))]
)
def test_an_application_that_starts_itself_is_no_fork_bomb(
    tmp_path: Path, start_method: str, *, disguised: bool
) -> None:
    """Named as the command, or passing for an interpreter by its name alone."""
    name = "python-application" if disguised else "application"
    log, path = tmp_path / "starts", tmp_path / name
    executable = str(path) if disguised else sys.executable
    options: dict[str, Any] = {"start_method": start_method, "spare_workers": 1}
    if not disguised:
        options["worker_command"] = [str(path)]
    paths = [str(_SOURCE), *(entry for entry in sys.path if "site-packages" in entry)]
    script = APPLICATION.format(log=str(log), paths=paths, executable=executable, options=options)
    executable_file(path, f"#!{sys.executable}\n{script}")
    with nothing_left(), no_orphan_left():
        outcome = subprocess.run([str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert outcome.stdout.startswith("refused: "), outcome
    (first, _), *others = (line.split() for line in log.read_text().splitlines())
    # As many as the pool has tried within its time: none of those has started another.
    assert {parent for _, parent in others} == {first}


@pytest.mark.parametrize("given", [(), (sys.executable,)])
def test_what_was_started_as_a_worker_starts_no_worker(monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]) -> None:
    monkeypatch.setenv(WORKER_ENVIRONMENT_VARIABLE, "1")
    with pytest.raises(CodeModeWorkerError, match=WORKER_ENVIRONMENT_VARIABLE):
        resolve_interpreter_command(given)


def test_the_error_comes_out_of_an_async_run_too(make_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from codemode import run_code_mode

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(CodeModeWorkerError, match="frozen"):
        asyncio.run(asyncio.wait_for(run_code_mode("return 1", (), pool=make_pool()), 60))


def test_windows_is_refused_clearly(make_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CodeModeWorkerError, match="do not run on Windows"):
        one(make_pool())
    monkeypatch.undo()


def test_a_worker_finds_nothing_of_the_hosts_environment(make_pool: Any, tmp_path: Path) -> None:
    seen = tmp_path / "environment"
    wrapper = executable_file(tmp_path / "wrapper", f'#!/bin/sh\nenv > {seen}\nexec {sys.executable} "$@"\n')
    os.environ["CODEMODE_TEST_SECRET"] = "hush"
    try:
        assert one(make_pool(worker_command=[wrapper])) == 42
    finally:
        del os.environ["CODEMODE_TEST_SECRET"]
    assert f"{WORKER_ENVIRONMENT_VARIABLE}=1" in seen.read_text()
    assert "hush" not in seen.read_text()
