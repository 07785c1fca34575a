"""Runs a program on a worker with the real kernel, frame by frame: what the kernel itself does, without a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from worker_driver import WAIT_MS, read_hello, read_messages, send

from codemode.protocol.messages import RunModule, RunProgram
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.process import WorkerProcess
from codemode.workers.zygote import Zygote

Answer = Callable[[dict[str, Any]], dict[str, Any]]
Imports = Sequence[tuple[str, str]]

LIMITS = {
    "memory_limit_bytes": 64 << 20,
    "max_stack_size_bytes": 2 << 20,
    "max_result_bytes": 1 << 20,
    "max_tool_input_bytes": 1 << 20,
    "max_bridge_requests": 256,
    "max_in_flight_bridge_requests": 32,
    "max_console_bytes": 65536,
    "max_catalog_requests": 64,
    "max_content_parts": 64,
}
GLOBALS = ["callTool", "getTool", "codecallContext", "console", "mcpLog", "mcpNotify"]
SHADOWED = ["eval", "Function", "AsyncFunction", "process", "fetch", "setTimeout"]
MODULE: dict[str, Any] = {
    "wrapper": "module", "globals": ["console", "setTimeout", "clearTimeout"], "console": "stable",
    "seed": "0" * 32, "now_ms": 1000, "limit_names": {"max_bridge_requests": "maxToolCalls"},
}  # fmt: skip
STRICT: dict[str, Any] = {"wrapper": "strict", "globals": ["tools", "console"], "seed": "0" * 32, "now_ms": 1000}


@dataclass
class Said:
    """What a program came to: its last frame, and those before it by kind."""

    kind: str
    body: dict[str, Any]
    frames: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])

    @property
    def value(self) -> Any:
        assert self.kind == "V", self.body
        return None if self.body.get("undefined") else json.loads(self.body["value"])

    @property
    def error(self) -> dict[str, Any]:
        assert self.kind == "X", self.body
        return self.body

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [body for one, body in self.frames if one == kind]


def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"value": json.loads(request["input"])} if "input" in request else {}


class KernelDriver:
    """Workers of one zygote; each program has one of its own."""

    def __init__(self) -> None:
        self._zygote = Zygote(WorkerImage.from_installed(GUEST_RUNTIME))

    def run(self, js: str, answer: Answer = echo, **config: Any) -> Said:
        """Run a program to its end. ``answer`` gives value or error of each call, one after the other."""
        return self._run(RunProgram(js, {**STRICT, **LIMITS, **config}).to_frame(), answer)

    def module(self, js: str, answer: Answer = echo, imports: Imports = (), given: Any = None, **config: Any) -> Said:
        """Run a module as the analysis leaves it. ``imports`` are pairs of specifier and what it is bound to.

        That is the pattern in front of the text: a name for the namespace, else a pattern in braces. `import()` is
        there as ``load``. ``given`` are servers by path.
        """
        bindings = "".join(f"{at}:{bound}," for at, (_, bound) in enumerate(imports))
        prefix = f"const{{{bindings}load}}=$codemode;"
        module = {"prefix": len(prefix.encode()), "take": "$codemode", "imports": [name for name, _ in imports]}
        told = {"given": {"module": {**module, "servers": given or {}, "all": False}}}
        return self._run(RunModule(prefix + js, {**MODULE, **LIMITS, **told, **config}).to_frame(), answer)

    def _run(self, frame: bytes, answer: Answer) -> Said:
        worker = self._zygote.spawn()
        try:
            read_hello(worker)
            worker.channel.sendall(frame)
            return converse(worker, answer)
        finally:
            worker.kill()
            assert worker.wait_until_dead(WAIT_MS)
            worker.close()

    def run_code_call(self, js: str, answer: Answer = echo, given: Any = None, **config: Any) -> Said:
        """Run a script of CodeCall, which is given nothing but what is said."""
        given = {"context": {}, "definitions": {}, "all": True, "namespaces": [], **(given or {})}
        return self.run(js, answer, globals=GLOBALS, shadowed=SHADOWED, given=given, **config)

    def close(self) -> None:
        self._zygote.kill()


def converse(worker: WorkerProcess, answer: Answer) -> Said:
    frames: list[tuple[str, dict[str, Any]]] = []
    open_calls: list[dict[str, Any]] = []
    for kind, body in _messages(worker):
        if kind in "VXF":
            return Said(kind, body, frames)
        frames.append((kind, body))
        if kind == "C":
            open_calls.append(body)
        if kind == "W":
            open_calls = [call for call in open_calls if call["id"] != body["id"]]
        if kind == "T":
            assert open_calls, "the program waits for nothing"
            call = min(open_calls, key=_due)
            open_calls.remove(call)
            answered = {} if call["kind"] == "timer" else answer(call)
            send(worker, b"D", json.dumps({"id": call["id"], "now": 1000, **answered}))
    raise AssertionError("the worker has said no end")


def _due(call: dict[str, Any]) -> tuple[int, int]:
    """Calls are answered in their order, and timers behind them in that of their delays."""
    return int(call["input"]) + 1 if call["kind"] == "timer" else 0, call["id"]


def _messages(worker: WorkerProcess) -> Iterator[tuple[str, dict[str, Any]]]:
    while True:
        messages = read_messages(worker)
        assert not any(kind in b"VXF" for kind, _ in messages[:-1]), "the worker goes on after the end"
        for kind, payload in messages:
            yield kind.decode(), json.loads(payload)
