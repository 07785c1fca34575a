"""Zygote and workers as processes: hellos, frames, programs, threads."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from worker_driver import (
    STUB_KERNEL,
    WAIT_MS,
    frame,
    read_frame,
    read_hello,
    read_messages,
    run_program,
    send,
    stub_image,
)

from codemode.protocol.messages import AnalyseProgram
from codemode.workers.image import find_engine
from codemode.workers.process import spawn_worker_process
from codemode.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")


def test_hello_names_engine_and_kernel(zygote: Zygote) -> None:
    worker = zygote.spawn()
    hello = read_hello(worker)
    worker.close()
    assert hello["engine"] == find_engine()[1]
    assert hello["kernel"] == STUB_KERNEL.compute_sha256()


def test_a_program_runs_and_the_worker_ends_by_itself(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "text")
    assert read_frame(worker) == (b"V", b'"text"')
    with pytest.raises(EOFError):
        read_frame(worker)
    assert worker.wait_until_dead(WAIT_MS)
    worker.close()
    worker.close()
    assert worker.is_dead()


def test_pipelined_frames_are_answered_in_order(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "call")
    assert read_messages(worker) == [(b"C", b'{"id":1}'), (b"L", b"{}"), (b"T", b"{}")]
    worker.channel.sendall(b"".join(frame(b"D", str(number)) for number in range(100)) + frame(b"D", "end"))
    answers: list[tuple[bytes, bytes]] = []
    while len(answers) < 101:  # those that are there at once come in one frame
        answers += read_messages(worker)
    worker.close()
    assert answers == [(b"T", str(number).encode()) for number in range(100)] + [(b"V", b"{}")]


def test_a_frame_may_arrive_byte_by_byte_and_be_large(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "call")
    read_messages(worker)
    for byte in frame(b"D", "1"):
        worker.channel.sendall(bytes([byte]))
    assert read_frame(worker) == (b"T", b"1")
    text = "7" * 300_000
    send(worker, b"D", text)
    assert read_frame(worker) == (b"T", text.encode())
    worker.close()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("memory", "out of memory"),
        ("broken", "kernel-error: broken"),
        ("number", "no text"),
    ],
)
def test_a_failing_engine_is_reported_and_ends_the_worker(zygote: Zygote, program: str, message: str) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, program)
    kind, payload = read_frame(worker)
    assert kind == b"F"
    assert message in json.loads(payload)["message"]
    assert len(json.loads(payload)["message"]) <= 300
    assert worker.wait_until_dead(WAIT_MS)
    worker.close()


def test_jobs_without_end_do_not_hold_back_the_result(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "jobs")
    assert read_frame(worker) == (b"V", b"{}")
    worker.close()


def test_local_time_is_utc_and_opens_no_file(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "zone")
    assert read_frame(worker) == (b"V", b"0")
    worker.close()


def test_programs_are_analysed_by_the_parser_loaded_before_the_lock(tmp_path: Path) -> None:
    parser = tmp_path / "analyse.py"
    parser.write_text(
        "def load_analyser(site_paths):\n"
        "    def analyse(text, ms, names=False, is_rehearsal=False):\n"
        "        return {'js': text, 'deadline': ms, 'names': names}\n"
        "    analyse.repair_program = lambda text, ms, analysis: None\n"
        "    return analyse\n"
    )
    zygote = Zygote(stub_image(analyser_path=str(parser)))
    worker = zygote.spawn()
    read_hello(worker)
    worker.channel.sendall(AnalyseProgram("x\u00e9\U0001f600", 50, analysis_mode=1).to_frame())
    kind, payload = read_frame(worker)
    run_program(worker, "after")
    assert read_frame(worker) == (b"V", b'"after"')
    worker.close()
    zygote.kill()
    assert (kind, json.loads(payload)) == (b"a", {"js": "x\u00e9\U0001f600", "deadline": 50, "names": True})


def test_messages_of_a_turn_are_frames_of_their_own_when_they_are_long(zygote: Zygote) -> None:
    worker = zygote.spawn()
    read_hello(worker)
    run_program(worker, "long call")
    kind, payload = read_frame(worker)
    assert (kind, len(payload)) == (b"C", 100_000)
    assert [read_frame(worker) for _ in range(2)] == [(b"L", b"{}"), (b"T", b"{}")]
    worker.close()


def test_threads_share_a_zygote(zygote: Zygote) -> None:
    answers: list[tuple[bytes, bytes]] = []

    def use() -> None:
        for _ in range(10):
            worker = zygote.spawn()
            read_hello(worker)
            run_program(worker, "text")
            answers.append(read_frame(worker))
            worker.close()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MS / 1000)
    assert answers == [(b"V", b'"text"')] * 40


def test_an_executed_worker_runs_a_program() -> None:
    worker = spawn_worker_process(stub_image(), isolation_required=True)
    read_hello(worker)
    run_program(worker, "text")
    assert read_frame(worker) == (b"V", b'"text"')
    assert worker.wait_until_dead(WAIT_MS)
    worker.close()
