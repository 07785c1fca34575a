"""A worker that names large strings as no kernel of ours would, and one that holds what only large strings bring."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from large_texts import LINE, OTHER, TEXT, LargeTexts
from wrong_worker_host import RESULT, call

from codemode import CodeModeProtocolError, Tool, WorkerPool, create_code_call_tools
from codemode.testing.fake_worker import FakeWorker, FakeWorkerSource

WAIT_SECONDS = 60.0
SIDECAR = {"sidecar": {"enabled": True}}


def outcome(script: Any, texts: LargeTexts) -> Any:
    """Run a script's text on a worker that says what it is told to."""
    pool = WorkerPool({"spare_workers": 0}, source=lambda: FakeWorkerSource(script))
    code_call = create_code_call_tools(texts.tools(), {**SIDECAR, "vm": {"preset": "balanced"}}, pool=pool)
    try:
        return asyncio.run(asyncio.wait_for(code_call.execute({"script": "return 1"}), WAIT_SECONDS))
    finally:
        pool.close()


def begun(worker: FakeWorker) -> None:
    """Say hello, and have one call answered with large strings."""
    worker.send_hello()
    assert worker.receive_message()[0] == b"R"
    worker.send_frame(b"C", call(1, "read"))
    worker.send_frame(b"T", {"in_flight": 1})
    while worker.receive_message()[0] == b"S":
        pass


@pytest.fixture(autouse=True, scope="module")
def _analysed() -> None:
    """Let the host know the script, so that no worker has to analyse it. Only a worker's first analysis is kept."""
    with WorkerPool({"programs_per_worker": 1}) as pool:
        code_call = create_code_call_tools(LargeTexts().tools(), pool=pool)
        assert code_call.execute_sync({"script": "return 1"})["result"] == 1


UNKNOWN = ["0E99", "[0E0,0E999999999]", '{"text":0E4}']


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_input_with_strings_that_were_never_handed_out_ends_the_invocation(text: str):
    def script(worker: FakeWorker) -> None:
        begun(worker)
        worker.send_frame(b"C", call(2, "take", input=text))
        worker.send_frame(b"T", {"in_flight": 1})
        worker.wait_silently()

    texts = LargeTexts()
    with pytest.raises(CodeModeProtocolError, match="not given"):
        outcome(script, texts)
    assert texts.taken == []


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_result_with_them_is_none(text: str):
    def script(worker: FakeWorker) -> None:
        begun(worker)
        worker.send_frame(b"V", {**RESULT, "value": text})

    with pytest.raises(CodeModeProtocolError, match="not given"):
        outcome(script, LargeTexts())


def test_a_worker_gains_nothing_by_naming_those_that_it_has():
    def script(worker: FakeWorker) -> None:
        begun(worker)
        worker.send_frame(b"C", call(2, "take", input="[0E1,0E0]"))
        worker.send_frame(b"T", {"in_flight": 1})
        worker.receive_message()
        worker.send_frame(b"V", {**RESULT, "value": "[0E1]"})

    texts = LargeTexts()
    assert outcome(script, texts) == {"status": "ok", "result": [OTHER]}
    assert texts.taken == [[OTHER, TEXT]]


def test_texts_that_come_in_parts_are_whole_and_in_their_order():
    lengths = [3000, 61_430, 61_440, 65_525, 65_535, 65_536, 65_537, 69_629, 69_633, 131_072, 200_000, 2000]
    texts = [f"{length}:" + (LINE * (1 + length // len(LINE)))[:length] for length in lengths]
    texts += [texts[7], "\u4e16" * 50_000, texts[10]]
    tools = [Tool("read", execute=lambda value: texts[value["from"] :])]
    code_call = create_code_call_tools(tools, {**SIDECAR, "vm": {"preset": "balanced"}})
    script = """
      const all = await callTool("read", { from: 0 }), again = await callTool("read", { from: 5 });
      const said = (one) => [one.length, one.slice(0, 9), one.slice(-50), one.slice(1).length];
      return [all.map(said), again.map(said), all.slice(3), again];
    """

    def said(text: str) -> list[Any]:
        plain = text.encode("utf-16-le")
        last = plain[-100:].decode("utf-16-le", "replace")
        return [len(plain) // 2, text[:9], last, len(plain) // 2 - 1]

    answered = code_call.execute_sync({"script": script})
    assert answered["status"] == "ok", answered
    assert answered["result"] == [[said(one) for one in texts], [said(one) for one in texts[5:]], texts[3:], texts[5:]]
