"""The worker process: locks itself, runs one program and exits.

Imports nothing of the package.
A reused worker runs further programs, each in an engine of its own (`program_reset.py`).
Runs under `-I -S`. Passes strings into one kernel function and gets flat strings back: it reads and converts no guest
value.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
import time
from importlib.machinery import SourceFileLoader
from types import ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .lock import SandboxLockdown

CHANNEL_FD = 3
# Small, because each read allocates as much again. A long frame is read in larger parts.
MAX_READ_BYTES = 1 << 12
# A turn's messages go out as one frame up to this size.
MAX_BATCH_BYTES = 1 << 16
MAX_MESSAGE_CHARACTERS = 300
UNLOCKED_CPU_SECONDS = 3600

_HEADER, _LIMITS, _ANALYSIS = map(struct.Struct, (">I", ">III?", ">IB"))
_ANALYSE, _RUN, _RUN_MODULE, _DELIVER, _HOLD, _TIME = b"ARMDST"
# The program kinds, by the number in the frame.
_MODULE_SURFACE = 2
# Kinds of failure for which the engine may not know the place.
_TYPE_ERROR_LINE, _PLACE_SEARCH_MS = 'X{"name":"TypeError"', 200
_OUT_OF_MEMORY = "out of memory"
_OUT_OF_MEMORY_FRAME = b'F{"message": "MemoryError", "origin": "memory"}'

# The program's frame begins with its text. What it was given is named so, and alone may hold such integers as a value.
_JS_KEY, _GIVEN_KEY, _DECODER = '{"js":', '"given":', json.JSONDecoder()


class EngineFailedError(Exception):
    """The engine or the guest runtime failed; the text is the engine's, clipped."""


def load_source(name: str, path: str) -> ModuleType:
    """Run the Python file at `path` as module `name`, without a search path."""
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    SourceFileLoader(name, path).exec_module(module)
    return module


class Worker:
    """A pristine context with the guest runtime in it, the parser, and what the hello frame says of them."""

    def __init__(self, config: dict[str, Any]) -> None:
        _set_time_zone_to_utc()
        self.engine_pool = load_source("engines", config["engines_path"]).EnginePool(config)
        self.identity = {"engine": config["engine_version"], "kernel": self.engine_pool.runtime_sha256}
        first = self.engine_pool.make_engine_and_count_limit()
        self.analyser: Any = _load_analyser(config["analyser"])
        self.may_hold_long_integers: Callable[[bytes | memoryview], bool] = load_source(
            "long_integers", config["long_integers_path"]
        ).may_hold_long_integers
        self.warm_up_module = load_source("warm_up", config["warm_up_path"])
        self.syntax_check = load_source("syntax_check", config["syntax_check_path"])
        self._turn_runner_class = load_source("turn_runner", config["turn_runner_path"]).TurnRunner
        self._program_reset_class = (
            None
            if self.engine_pool.has_made_all_engines
            else load_source("program_reset", config["program_reset_path"]).ProgramReset
        )
        self.program_reset: Any = None
        self.use_engine(first)

    def use_engine(self, engine: tuple[Any, Any, int]) -> None:
        """Run the next program in this engine."""
        self.engine = engine
        self._config_text = ""  # of its program
        self.context, self.runtime, self._reserved_bytes = engine
        self.turn_runner = self._turn_runner_class(
            self.context, self.runtime, EngineFailedError, time.monotonic, time.process_time
        )

    def create_hello_frame(self, isolation: dict[str, str]) -> bytes:
        """The frame that tells the host what this worker is and how it is locked."""
        return _encode_frame(_encode_json_line(b"H", {**self.identity, "isolation": isolation}))

    def warm_up(self, *, is_full: bool = False) -> None:
        """Run programs of our own through everything, and leave no trace of them.

        In a zygote, where it ``is_full``, it fills the interpreter's caches, which every fork would otherwise fill for
        itself. A forked process shares its memory until it writes to it, and each page that it writes to first has to
        be copied: a spare worker has the time to do that before there is a program, but not for all that may come.
        """
        for surface in self.warm_up_module.list_analysis_modes(is_full) if self.analyser is not None else ():
            module = self.warm_up_module
            source = module.MODULE_SOURCE if surface == _MODULE_SURFACE else module.FUNCTION_SOURCE
            _encode_json_line(b"a", self._analyse_and_repair(source, 1000, surface, True))  # as it would be told
        self.warm_up_engine(is_full=is_full)

    def warm_up_engine(self, *, is_full: bool = False) -> None:
        """Do of that what is done in the engine."""
        for frames in self.warm_up_module.list_program_frames(is_full):
            for body in frames:
                self._answer_frame(body)
            self.turn_runner.reset_after_warm_up()

    def serve(self, *, makes_engines: bool = False) -> None:
        """Answer frames until the program, the last of them, has ended or the host has gone. Does not return."""
        if self._program_reset_class is not None:
            self.program_reset = self._program_reset_class(self, makes_engines=makes_engines)
        received: bytes | bytearray = b""
        while True:
            received += _read_chunk_or_exit(MAX_READ_BYTES)
            replies: list[bytes] = []
            received, is_finished = self._answer_frames(received, replies)
            if replies:
                _write_all_or_exit(_encode_frames(b"\n".join(replies)))
            if is_finished:
                self._prepare_next_program_or_exit()

    def _prepare_next_program_or_exit(self) -> None:
        """Be ready for the next program, or end."""
        frame = None if self.program_reset is None else self.program_reset.prepare_next_program_and_make_frame()
        if frame is None:
            os._exit(0)
        _write_all_or_exit(_HEADER.pack(len(frame)) + frame)

    def _answer_frames(self, received: bytes | bytearray, replies: list[bytes]) -> tuple[bytes | bytearray, bool]:
        """Answer every frame of which the header is there; what is left, and whether there is nothing more to do.

        ``replies`` are lines: what is said at once goes out as one frame.
        """
        try:
            while len(received) >= 4:
                end = 4 + _HEADER.unpack_from(received)[0]
                if len(received) < end:
                    if replies:
                        break
                    is_long = len(received) > 4 and end - len(received) > MAX_BATCH_BYTES
                    if is_long and received[4] == _HOLD and not self._is_between_programs:
                        self._stream_long_text_to_runtime(received[5:], end - len(received))
                        return b"", False
                    received = _read_rest_of_frame(received, end)
                # A view: a long frame is not copied again and again, into memory that first has to be made present.
                reply, is_finished = self._answer_frame(memoryview(received)[4:end])
                received = received[end:]
                if reply:
                    replies.append(reply)
                if received and (reply[:1] == b"C" or b"\nC" in reply):
                    # Calls must not wait for the turns behind them, which may never end.
                    _write_all_or_exit(_encode_frames(b"\n".join(replies)))
                    replies.clear()
                if is_finished:
                    return received, True
        except MemoryError:
            replies.append(_OUT_OF_MEMORY_FRAME)
        except Exception as error:  # noqa: BLE001 -- any exception of the engine ends this worker, with a report
            replies.append(_encode_failure_line(error))
        else:
            return received, False
        self.program_reset = None  # no other program runs here
        return b"", True

    def _answer_frame(self, body: bytes | memoryview) -> tuple[bytes, bool]:
        """The lines that answer one frame, and whether the program has ended."""
        if self._is_between_programs:
            self.program_reset.begin_program_if_announced(body)
            return b"", False
        kind = body[0] if body else 0
        if kind == _DELIVER:
            operation = "deliver exactly" if self.may_hold_long_integers(body) else "deliver"
            return self._correct_and_encode_turn(*self.turn_runner.run_turn(operation, str(body[1:], "utf-8")))
        if kind == _HOLD:
            self.turn_runner.call_runtime("hold", str(body[1:], "utf-8"))
            return b"", False
        if kind == _TIME:
            self.turn_runner.extend_deadline(_HEADER.unpack_from(body, 1)[0])
            return b"", False
        if kind in (_RUN, _RUN_MODULE):
            return self._run_program(body, is_module=kind == _RUN_MODULE)
        if kind == _ANALYSE and self.analyser is not None:
            analysis = self._analyse_and_repair(
                str(body[1 + _ANALYSIS.size :], "utf-8"), *_ANALYSIS.unpack_from(body, 1)
            )
            return _encode_json_line(b"a", analysis), False
        raise EngineFailedError("unknown frame kind")

    @property
    def _is_between_programs(self) -> bool:
        return self.program_reset is not None and self.program_reset.is_waiting

    def _stream_long_text_to_runtime(self, first_part: bytes | bytearray, remaining_bytes: int) -> None:
        """Hand a long text on as it comes: each buffer as long as it is memory that first has to be made present."""
        self.turn_runner.call_runtime("hold part", str(first_part, "ascii"))
        while remaining_bytes:
            part = _read_chunk_or_exit(min(remaining_bytes, MAX_BATCH_BYTES))
            remaining_bytes -= len(part)
            self.turn_runner.call_runtime("hold part" if remaining_bytes else "hold last part", str(part, "ascii"))

    def _analyse_and_repair(
        self, text: str, deadline_ms: int, surface: int, is_warm_up: bool = False
    ) -> dict[str, Any]:
        if self.analyser is None:
            raise EngineFailedError("no parser")
        analysis = self._analyse_once(text, deadline_ms, surface, is_warm_up)
        analyse: Any = self.analyser
        repair = analyse.repair_program(text, deadline_ms, analysis)  # rehearsed too: it looks at every program
        if repair is None:
            return analysis
        analysis = self._analyse_once(repair.text, deadline_ms, surface)
        # A fenced text may export, as a module of Node.js does.
        if (second_repair := analyse.repair_program(repair.text, deadline_ms, analysis)) is not None:
            repair = analyse.chain_repairs(repair, second_repair)
            analysis = self._analyse_once(repair.text, deadline_ms, surface)
        return analyse.restore_locations_and_add_repairs(analysis, repair, text)

    def _analyse_once(self, text: str, deadline_ms: int, surface: int, is_warm_up: bool = False) -> dict[str, Any]:
        analysis = self.analyser(text, deadline_ms, surface, is_warm_up)  # type: ignore[misc]
        return (
            self.syntax_check.check_syntax_of_analysed_module(self.context.module, analysis)
            if surface == _MODULE_SURFACE
            else analysis
        )

    def _run_program(self, body: bytes | memoryview, *, is_module: bool) -> tuple[bytes, bool]:
        memory_limit_bytes, max_stack_size_bytes, stop_ms, counts_waiting = _LIMITS.unpack_from(body, 1)
        memory_limit_bytes += self._reserved_bytes
        self.context.set_memory_limit(memory_limit_bytes)
        self.context.set_max_stack_size(max_stack_size_bytes)
        config = str(body[1 + _LIMITS.size :], "utf-8")
        exactly = self.may_hold_long_integers(config.partition(_GIVEN_KEY)[2].encode())
        operation = "run exactly" if exactly else "run"
        self._config_text = config
        if not is_module:
            return self._correct_and_encode_turn(*self.turn_runner.run_turn(operation, config))
        try:
            self.turn_runner.call_runtime(operation, config)
        except EngineFailedError as error:
            if not str(error).endswith(": out of memory"):
                raise
            return self._correct_and_encode_turn(*self.turn_runner.run_turn("refused", "InternalError: out of memory"))
        if stop_ms:
            self.turn_runner.set_time_limit(stop_ms, counts_waiting)
        operation_and_argument = self._evaluate_module_and_get_operation(
            _DECODER.raw_decode(config, len(_JS_KEY))[0], memory_limit_bytes
        )
        return self._correct_and_encode_turn(*self.turn_runner.finish_turn(*operation_and_argument))

    def _correct_and_encode_turn(self, lines: str, is_finished: bool) -> tuple[bytes, bool]:
        last_line_start = lines.rfind("\n") + 1
        if is_finished and lines.startswith(_TYPE_ERROR_LINE, last_line_start) and self.analyser is not None:
            lines = lines[:last_line_start] + self._correct_error_location(lines[last_line_start:])
        return lines.encode(), is_finished

    def _correct_error_location(self, line: str) -> str:
        """Return the program's exception, with a place found in its text where the engine knows none."""
        try:
            config: dict[str, Any] = json.loads(self._config_text)
            given_values: dict[str, Any] = config.get("given") or {}
            module: dict[str, Any] = given_values.get("module") or {}
            prefix: int = module.get("prefix", 0)
            at, length = module.get("last", (0, 0))
            text: str = config["js"].encode()[prefix:].decode()
            correct_error_location: Callable[..., str] = self.analyser.correct_error_location
            return correct_error_location(
                line, _remove_span(text, at, length), _PLACE_SEARCH_MS, given_values.get("places")
            )
        except Exception:  # noqa: BLE001 -- a place is worth less than what was thrown
            return line

    def _evaluate_module_and_get_operation(self, js: str, memory_limit_bytes: int) -> tuple[str, object]:
        """Return the guest runtime's input for a module: the engine's promise, unexamined, or why there is none."""
        try:
            promise = self.context.module(js)
            return "watch" if self.turn_runner.probe_free_memory(memory_limit_bytes) else "watch full", promise
        except Exception as error:  # noqa: BLE001 -- any exception ends the program
            # No error of a text that the engine evaluates arrives here: these messages are the engine's or Python's.
            reported_error = error if type(error).__module__ == "_quickjs" else f"SyntaxError: {error}"
            return "refused", str(reported_error)[:MAX_MESSAGE_CHARACTERS].encode("ascii", "backslashreplace").decode()


def _remove_span(text: str, at: int, length: int) -> str:
    """A text without so many ASCII characters from a place in it, which is counted in UTF-16 units."""
    if not text.isascii():
        units = 0
        for index, character in enumerate(text):  # the codec cannot be imported here
            if units >= at:
                at = index
                break
            units += 2 if character > "\uffff" else 1
    return text[:at] + text[at + length :]


def _set_time_zone_to_utc() -> None:
    # The engine asks the C library for local time, which would open a file after the lock.
    os.environ["TZ"] = "UTC0"
    time.tzset()


def _load_analyser(location: dict[str, Any] | None) -> Any:
    if location is None:
        return None
    return load_source("analyse", location["path"]).load_analyser(location["site_paths"])


def _encode_frames(lines: bytes) -> bytes:
    """Messages as one frame, or each as a frame of its own when they are long."""
    if len(lines) <= MAX_BATCH_BYTES:
        return _HEADER.pack(len(lines)) + lines
    return b"".join(_HEADER.pack(len(line)) + line for line in lines.split(b"\n"))


def _read_chunk_or_exit(size: int) -> bytes:
    """At least one byte of what the host sends; does not return when the host has gone."""
    chunk = os.read(CHANNEL_FD, size)
    if not chunk:
        os._exit(0)
    return chunk


def _read_rest_of_frame(received: bytes | bytearray, end: int) -> bytearray:
    buffer, filled = bytearray(end), len(received)
    buffer[:filled] = received
    while filled < end:
        chunk = _read_chunk_or_exit(min(end - filled, MAX_BATCH_BYTES))
        buffer[filled : filled + len(chunk)] = chunk
        filled += len(chunk)
    return buffer


def _encode_json_line(kind: bytes, value: object) -> bytes:
    return kind + json.dumps(value).encode()


def _encode_frame(line: bytes) -> bytes:
    return _HEADER.pack(len(line)) + line


def _encode_failure_line(error: Exception) -> bytes:
    # The engine throws null when it has no memory left for an error object.
    text = _OUT_OF_MEMORY if (error_text := str(error).strip()) == "null" else error_text
    name = "" if isinstance(error, EngineFailedError) else type(error).__name__ + ": "
    origin = "request" if text == "kernel-error: unknown request" else "engine"
    # Texts of the engine or the guest runtime: what a program throws never comes this way.
    if text == _OUT_OF_MEMORY or text.endswith(": " + _OUT_OF_MEMORY):
        origin = "memory"
    return _encode_json_line(b"F", {"message": (name + text)[:MAX_MESSAGE_CHARACTERS], "origin": origin})


def _write_all_or_exit(data: bytes) -> None:
    try:
        written_bytes = os.write(CHANNEL_FD, data)
        while written_bytes < len(data):
            written_bytes += os.write(CHANNEL_FD, memoryview(data)[written_bytes:])
    except OSError:
        os._exit(0)


def begin_lockdown(config: dict[str, Any], parent_pid: int) -> SandboxLockdown:
    """The shared half of the lock-down applied, the final half made ready. Each worker dies with ``parent_pid``."""
    return load_source("lock", config["lock_path"]).SandboxLockdown(config, parent_pid, load_source)


def lock_and_say_hello(
    worker: Worker, lockdown: SandboxLockdown, expected_hello: bytes | None, channel_fd: int, *, warm_up: bool = True
) -> None:
    """Lock this process onto ``channel_fd`` and send the hello: ``expected_hello`` unless a layer is refused."""
    refusals = lockdown.apply_final_layers_and_get_refusals(channel_fd)
    if refusals or expected_hello is None:
        layers = {**lockdown.shared_layers, **refusals}
        refusal = lockdown.describe_missing_layers(layers)
        if refusal is not None:
            _write_all_or_exit(_encode_frame(_encode_failure_line(EngineFailedError(refusal))))
            os._exit(0)
        expected_hello = worker.create_hello_frame(layers)
    if warm_up:
        worker.warm_up()
    _write_all_or_exit(expected_hello)


def main() -> None:
    """One worker started by exec: argument 1 is the configuration, as ASCII JSON."""
    config = json.loads(sys.argv[1])
    channel_fd = config["channel_fd"]
    try:
        worker = Worker(config)
        lockdown = begin_lockdown(config, config["parent_pid"]) if os.uname().sysname == "Linux" else None
    except Exception as error:
        os.write(channel_fd, _encode_frame(_encode_failure_line(error)))
        raise
    if lockdown is None:
        _limit_cpu_and_say_hello_unlocked(worker, channel_fd, is_isolation_required=config["isolation_required"])
    else:
        lock_and_say_hello(worker, lockdown, None, channel_fd)
    worker.serve(makes_engines=True)


def _limit_cpu_and_say_hello_unlocked(worker: Worker, channel_fd: int, *, is_isolation_required: bool) -> None:
    """Say hello where there is no lock-down: macOS and the BSDs, on which none of this has been tried."""
    if is_isolation_required:
        os.write(
            channel_fd,
            _encode_frame(_encode_failure_line(EngineFailedError("no isolation layer exists on this platform"))),
        )
        os._exit(0)
    # No signal tells that the host has died, and a program that does not end never reads its channel.
    limits = importlib.import_module("resource")
    limits.setrlimit(limits.RLIMIT_CPU, (UNLOCKED_CPU_SECONDS, UNLOCKED_CPU_SECONDS))
    os.dup2(channel_fd, CHANNEL_FD)
    worker.warm_up()
    _write_all_or_exit(worker.create_hello_frame({}))


if __name__ == "__main__":
    main()
