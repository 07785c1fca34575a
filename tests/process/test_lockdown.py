"""Native code inside a locked worker: what the filter stops, and what stands behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import native_attempts
import pytest
from suite import each_row
from worker_driver import WAIT_MS, read_frame, read_hello, stub_image

from codemode.errors import CodeModeProtocolError, CodeModeWorkerError
from codemode.workers.image import find_engine
from codemode.workers.process import spawn_worker_process
from codemode.workers.supply import (
    LAYERS,
    REQUIRED_LAYERS,
    IsolationLayerState,
    IsolationReport,
    find_missing_required_layers,
    require_isolation,
)
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lock-down is Linux's")

ATTEMPTS_SCRIPT = str(Path(native_attempts.__file__))
UNPRIVILEGED_UID = 1000
WITH_PYTHON_OF_THE_SYSTEM = ("/usr/bin/python3", "/usr/local/bin/python3")

# What the layers behind the filter refuse when there is no filter, and the layer that does it. All else in
# NAMES is stopped by the filter alone.
SECOND_LINE = {
    "open a file": "rlimits",
    "openat a file": "rlimits",
    "open /proc/self/maps": "rlimits",
    "create a file": "rlimits",
    "open a directory": "rlimits",
    "mkdir": "landlock",
    "internet socket": "rlimits",
    "unix socket": "rlimits",
    "netlink socket": "rlimits",
    "socketpair": "rlimits",
    "dup the channel": "rlimits",
    "memfd_create": "rlimits",
    "userfaultfd": "rlimits",
    "pipe2": "rlimits",
    "epoll": "rlimits",
    "pidfd of the host": "rlimits",
    "fork": "rlimits",
    "clone": "rlimits",
    "clone3": "rlimits",
    "execve": "landlock",
    "execveat": "landlock",
    "signal the host": "landlock",
    "tgkill the host": "landlock",
    "ptrace the host": "uid-drop",
    "read the host's memory": "uid-drop",
    "write the host's memory": "uid-drop",
    "mount": "uid-drop",
    "chroot": "uid-drop",
    "pivot_root": "uid-drop",
    "unshare the network": "uid-drop",
    "sethostname": "uid-drop",
    "reboot": "uid-drop",
    "read from standard input": "one-descriptor",
    "write to standard output": "one-descriptor",
    "read from descriptor 4": "one-descriptor",
    "sendfile": "one-descriptor",
}
# Landlock alone, with neither the filter nor the descriptor limit in front of it.
LANDLOCK_LINE = ("open a file", "openat a file", "create a file", "open a directory", "mkdir", "execve")


def try_as(uid: int | None, skip_layers: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """The outcomes, from a host of its own that runs as `uid`."""
    identity = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    result = subprocess.run(
        [python_for(uid), ATTEMPTS_SCRIPT, json.dumps({"skip_layers": skip_layers, "names": names})],
        env=module_path(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **identity,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def module_path() -> dict[str, str]:
    source = Path(__file__).parents[2] / "src"
    site = Path(find_engine()[0]).parent
    return {"PYTHONPATH": os.pathsep.join(map(str, (source, site))), "PYTHONDONTWRITEBYTECODE": "1"}


def python_for(uid: int | None) -> str:
    """An interpreter that this user can start and that finds the engine."""
    if uid is None:
        return sys.executable
    for candidate in (sys.executable, *WITH_PYTHON_OF_THE_SYSTEM):
        probe = "import sys, _quickjs, codemode.workers.zygote; assert sys.version_info >= (3, 11)"
        try:
            subprocess.run(
                [candidate, "-c", probe],
                user=uid,
                group=uid,
                extra_groups=[],
                env=module_path(),
                cwd="/",
                check=True,
                capture_output=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return candidate
    pytest.skip(f"no interpreter that user {uid} can start and that finds the engine")


@pytest.fixture(params=["as it is", "unprivileged"])
def uid(request: pytest.FixtureRequest) -> int | None:
    if request.param == "as it is":
        return None
    if os.geteuid() != 0:
        pytest.skip("the suite is not run by root: 'as it is' is the unprivileged case")
    return UNPRIVILEGED_UID


def landlock_of(report: IsolationReport) -> int:
    """The ABI in force, 0 for none."""
    layer = report["landlock"]
    return int(layer.detail.removeprefix("ABI ")) if layer.state is IsolationLayerState.IN_FORCE else 0


def report_of(**options: object) -> IsolationReport:
    zygote = Zygote(stub_image(), **options)
    worker = zygote.spawn()
    try:
        return IsolationReport.from_hello(read_hello(worker)["isolation"])
    finally:
        worker.close()
        zygote.kill()


def test_every_native_attempt_kills_the_worker(uid: int | None) -> None:
    outcomes = try_as(uid, (), native_attempts.NAMES)
    assert len(outcomes) >= 50
    assert {name: end for name, end in outcomes.items() if end != "killed by SIGSYS"} == {}


def test_what_the_other_layers_refuse_without_the_filter(uid: int | None) -> None:
    abi = landlock_of(report_of())
    names = [
        name for name, layer in SECOND_LINE.items() if layer != "landlock" or abi >= (6 if "the host" in name else 1)
    ]
    outcomes = try_as(uid, ("seccomp",), names)
    assert {name: end for name, end in outcomes.items() if not end.startswith("errno ")} == {}


def test_landlock_refuses_files_by_itself() -> None:
    if landlock_of(report_of()) == 0:
        pytest.skip("this kernel has no Landlock")
    outcomes = try_as(None, ("seccomp", "rlimits"), list(LANDLOCK_LINE))
    assert set(outcomes.values()) == {"errno 13"}
    # The same attempts succeed or fail otherwise without it: the test can fail.
    assert try_as(None, ("seccomp", "rlimits", "landlock"), ["open a file"]) == {"open a file": "allowed"}


def test_a_worker_holds_one_descriptor() -> None:
    zygote = Zygote(stub_image(), skip_layers=["seccomp"], test_hook_path=ATTEMPTS_SCRIPT)
    neighbours = [zygote.spawn() for _ in range(3)]
    worker = zygote.spawn()
    try:
        read_hello(worker)
        worker.channel.sendall(native_attempts.LIST_DESCRIPTORS.to_bytes(4, "big"))
        assert json.loads(worker.channel.recv(4096)) == [3]
    finally:
        for process in (*neighbours, worker):
            process.close()
        zygote.kill()


def test_a_locked_worker_reports_the_required_layers() -> None:
    report = report_of()
    assert not find_missing_required_layers(report)
    assert [layer.name for layer in report.layers] == list(LAYERS)
    require_isolation(report)


@each_row("layer", LAYERS)
def test_a_refused_layer_is_reported_and_the_rest_still_works(layer: str) -> None:
    report = report_of(skip_layers=[layer])
    assert report[layer].state is IsolationLayerState.REFUSED
    assert "not permitted" in report[layer].detail
    # Without no-new-privs the kernel lets nobody but root install a filter.
    dependent = {"no-new-privs": "seccomp"}.get(layer)
    others = {name for name in REQUIRED_LAYERS if name not in (layer, dependent)}
    assert all(report[name].state is IsolationLayerState.IN_FORCE for name in others)
    assert (not find_missing_required_layers(report)) == (layer not in REQUIRED_LAYERS)


def test_an_environment_that_forbids_namespaces_and_landlock_meets_what_is_required() -> None:
    report = report_of(skip_layers=["namespaces", "landlock", "uid-drop"], isolation_required=True)
    assert not find_missing_required_layers(report)


@pytest.mark.parametrize("layer", ["seccomp", "one-descriptor"])
def test_a_worker_refuses_to_run_without_a_required_layer(layer: str) -> None:
    zygote = Zygote(stub_image(), skip_layers=[layer], isolation_required=True)
    worker = zygote.spawn()
    try:
        kind, payload = read_frame(worker)
        assert kind == b"F"
        assert layer in json.loads(payload)["message"]
        assert worker.wait_until_dead(WAIT_MS)
    finally:
        worker.close()
        zygote.kill()


@pytest.mark.parametrize("layer", ["no-new-privs", "rlimits"])
def test_a_zygote_refuses_to_serve_without_a_required_layer(layer: str) -> None:
    zygote = Zygote(stub_image(), skip_layers=[layer], isolation_required=True)
    try:
        assert zygote._process.wait_until_dead(WAIT_MS)
        assert layer in zygote.describe_failure()
        with pytest.raises(CodeModeWorkerError, match=layer):
            zygote.spawn()
    finally:
        zygote.kill()


def test_an_executed_worker_locks_itself() -> None:
    worker = spawn_worker_process(stub_image(), isolation_required=True)
    try:
        report = IsolationReport.from_hello(read_hello(worker)["isolation"])
    finally:
        worker.close()
    assert not find_missing_required_layers(report)
    assert report["parent-death-signal"].state is IsolationLayerState.IN_FORCE


@pytest.mark.parametrize("layer", REQUIRED_LAYERS)
def test_an_executed_worker_refuses_without_a_required_layer(layer: str) -> None:
    worker = spawn_worker_process(stub_image(), isolation_required=True, skip_layers=[layer])
    try:
        kind, payload = read_frame(worker)
    finally:
        worker.close()
    assert kind == b"F"
    assert layer in json.loads(payload)["message"]


def test_a_missing_layer_is_named() -> None:
    report = IsolationReport.from_hello({"seccomp": "refused by the environment: EPERM", "rlimits": "in force"})
    with pytest.raises(CodeModeWorkerError) as caught:
        require_isolation(report)
    assert caught.value.details["missing"] == ["seccomp", "one-descriptor", "no-new-privs"]
    assert "seccomp: refused by the environment (EPERM)" in caught.value.message


@pytest.mark.parametrize(
    "value",
    [None, [], "in force", {"seccomp": 1}, {"seccomp": "on"}, {"seccomp": "in forced"}, {"firewall": "in force"}],
)
def test_a_malformed_report_breaks_the_protocol(value: object) -> None:
    with pytest.raises(CodeModeProtocolError):
        IsolationReport.from_hello(value)


def test_a_long_detail_is_clipped() -> None:
    report = IsolationReport.from_hello({"landlock": "refused by the environment: " + "x" * 10_000})
    assert len(report["landlock"].detail) == 200
