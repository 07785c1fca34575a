"""The worker process: locks itself, then runs one program and dies. Imports nothing of the package.

Where its pool keeps workers it has further programs, each in an engine of its own (`between.py`).
Runs under `-I -S`. Strings go into one kernel function and flat ones come out: it reads and converts no guest value.
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

    from .lock import Lock

CHANNEL_FD = 3
# Little, for each read allocates so much anew. Of a long frame more is read at once.
READ_BYTES = 1 << 12
# A turn's messages go out as one frame up to this size.
BATCH_BYTES = 1 << 16
MESSAGE_CHARACTERS = 300
UNLOCKED_CPU_SECONDS = 3600

_HEADER, _LIMITS, _ANALYSIS = map(struct.Struct, (">I", ">III?", ">IB"))
_ANALYSE, _RUN, _RUN_MODULE, _DELIVER, _HOLD, _TIME = b"ARMDST"
# What a program is to be read as, by the number in the frame.
_MODULE_FACE = 2
# Of a program that has failed in a way of which the engine may not know the place.
_THREW, _PLACE_MS = 'X{"name":"TypeError"', 200
_OUT_OF_MEMORY = "out of memory"
_NO_MEMORY = b'F{"message": "MemoryError", "origin": "memory"}'

# The program's frame begins with its text. What it was given is named so, and alone may hold such integers as a value.
_JS, _GIVEN, _DECODER = '{"js":', '"given":', json.JSONDecoder()


class EngineFailed(Exception):  # noqa: N818 -- named as the frame it becomes
    """The engine or the kernel broke; the text is engine-made and clipped."""


def load_source(name: str, path: str) -> ModuleType:
    """Run the Python file at `path` as module `name`, without a search path."""
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    SourceFileLoader(name, path).exec_module(module)
    return module


class Worker:
    """A pristine context with the kernel in it, the parser, and what the hello says of them."""

    def __init__(self, config: dict[str, Any]) -> None:
        _fix_time_zone()
        self.engines = load_source("engines", config["engines_path"]).Engines(config)
        self.identity = {"engine": config["engine_version"], "kernel": self.engines.kernel_hash}
        first = self.engines.make()
        self.analyse: Any = _load_analyser(config["analyser"])
        self.may_hold_long_integers: Callable[[bytes | memoryview], bool] = load_source(
            "long_integers", config["long_integers_path"]
        ).may_hold_long_integers
        self.rehearsal = load_source("rehearsal", config["rehearsal_path"])
        self.asking = load_source("asking", config["asking_path"])
        self._turns_of = load_source("turns", config["turns_path"]).Turns
        self._between_of = None if self.engines.is_complete else load_source("between", config["between_path"]).Between
        self.between: Any = None
        self.use(first)

    def use(self, engine: tuple[Any, Any, int]) -> None:
        """Run the next program in this engine."""
        self.engine = engine
        self._config = ""  # of its program
        self.context, self.kernel, self._bytes_taken = engine
        self.turns = self._turns_of(self.context, self.kernel, EngineFailed, time.monotonic)

    def hello(self, isolation: dict[str, str]) -> bytes:
        """The frame that tells the host what this worker is and how it is locked."""
        return _frame(_json_line(b"H", {**self.identity, "isolation": isolation}))

    def rehearse(self, *, is_whole: bool = False) -> None:
        """Run programs of our own through everything, and leave no trace of them.

        In a zygote, where it ``is_whole``, it fills the interpreter's caches, which every fork would otherwise fill for
        itself. A forked process shares its memory until it writes to it, and each page that it writes to first has to
        be copied: a spare worker has the time to do that before there is a program, but not for all that may come.
        """
        for face in self.rehearsal.faces(is_whole) if self.analyse is not None else ():
            source = self.rehearsal.MODULE if face == _MODULE_FACE else self.rehearsal.SOURCE
            _json_line(b"a", self._analyse(source, 1000, face, True))  # as it would be told
        self.rehearse_programs(is_whole=is_whole)

    def rehearse_programs(self, *, is_whole: bool = False) -> None:
        """Do of that what is done in the engine."""
        for frames in self.rehearsal.programs(is_whole):
            for body in frames:
                self._answer(body)
            self.turns.reset()

    def serve(self, *, makes_engines: bool = False) -> None:
        """Answer frames until the program, the last of them, has ended or the host has gone. Does not return."""
        if self._between_of is not None:
            self.between = self._between_of(self, makes_engines=makes_engines)
        received: bytes | bytearray = b""
        while True:
            received += _read(READ_BYTES)
            replies: list[bytes] = []
            received, ended = self._answer_frames(received, replies)
            if replies:
                _write(_frames(b"\n".join(replies)))
            if ended:
                self._renew()

    def _renew(self) -> None:
        """Be ready for the next program, or end."""
        said = None if self.between is None else self.between.renew()
        if said is None:
            os._exit(0)
        _write(_HEADER.pack(len(said)) + said)

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
                    is_long = len(received) > 4 and end - len(received) > BATCH_BYTES
                    if is_long and received[4] == _HOLD and not self._is_between:
                        self._hold_parts(received[5:], end - len(received))
                        return b"", False
                    received = _read_to(received, end)
                # A view: a long frame is not copied again and again, into memory that first has to be made present.
                reply, ended = self._answer(memoryview(received)[4:end])
                received = received[end:]
                if reply:
                    replies.append(reply)
                if received and (reply[:1] == b"C" or b"\nC" in reply):
                    # Calls must not wait for the turns behind them, which may never end.
                    _write(_frames(b"\n".join(replies)))
                    replies.clear()
                if ended:
                    return received, True
        except MemoryError:
            replies.append(_NO_MEMORY)
        except Exception as error:  # noqa: BLE001 -- whatever the engine raises ends this worker, and says so
            replies.append(_failure(error))
        else:
            return received, False
        self.between = None  # whatever it was, no other program runs here
        return b"", True

    def _answer(self, body: bytes | memoryview) -> tuple[bytes, bool]:
        """The lines that answer one frame, and whether the program has ended."""
        if self._is_between:
            self.between.take(body)
            return b"", False
        kind = body[0] if body else 0
        if kind == _DELIVER:
            operation = "deliver exactly" if self.may_hold_long_integers(body) else "deliver"
            return self._said(*self.turns.take(operation, str(body[1:], "utf-8")))
        if kind == _HOLD:
            self.turns.tell("hold", str(body[1:], "utf-8"))
            return b"", False
        if kind == _TIME:
            self.turns.stood_still(_HEADER.unpack_from(body, 1)[0])
            return b"", False
        if kind in (_RUN, _RUN_MODULE):
            return self._run(body, is_module=kind == _RUN_MODULE)
        if kind == _ANALYSE and self.analyse is not None:
            found = self._analyse(str(body[1 + _ANALYSIS.size :], "utf-8"), *_ANALYSIS.unpack_from(body, 1))
            return _json_line(b"a", found), False
        raise EngineFailed("unknown frame kind")

    @property
    def _is_between(self) -> bool:
        return self.between is not None and self.between.is_here

    def _hold_parts(self, begun: bytes | bytearray, left: int) -> None:
        """Hand a long text on as it comes: each buffer as long as it is memory that first has to be made present."""
        self.turns.tell("hold part", str(begun, "ascii"))
        while left:
            part = _read(min(left, BATCH_BYTES))
            left -= len(part)
            self.turns.tell("hold part" if left else "hold last part", str(part, "ascii"))

    def _analyse(self, text: str, deadline_ms: int, face: int, is_rehearsal: bool = False) -> dict[str, Any]:
        if self.analyse is None:
            raise EngineFailed("no parser")
        found = self._read(text, deadline_ms, face, is_rehearsal)
        analyse: Any = self.analyse
        repair = analyse.repaired(text, deadline_ms, found)  # rehearsed too: it looks at every program
        if repair is None:
            return found
        found = self._read(repair.text, deadline_ms, face)
        # What was in a fence may export, as a module of Node.js does.
        if (more := analyse.repaired(repair.text, deadline_ms, found)) is not None:
            repair = analyse.then(repair, more)
            found = self._read(repair.text, deadline_ms, face)
        return analyse.moved_back(found, repair, text)

    def _read(self, text: str, deadline_ms: int, face: int, is_rehearsal: bool = False) -> dict[str, Any]:
        found = self.analyse(text, deadline_ms, face, is_rehearsal)  # type: ignore[misc]
        return self.asking.checked(self.context.module, found) if face == _MODULE_FACE else found

    def _run(self, body: bytes | memoryview, *, is_module: bool) -> tuple[bytes, bool]:
        memory_limit_bytes, max_stack_size_bytes, stop_ms, counts_waiting = _LIMITS.unpack_from(body, 1)
        memory_limit_bytes += self._bytes_taken
        self.context.set_memory_limit(memory_limit_bytes)
        self.context.set_max_stack_size(max_stack_size_bytes)
        config = str(body[1 + _LIMITS.size :], "utf-8")
        exactly = self.may_hold_long_integers(config.partition(_GIVEN)[2].encode())
        operation = "run exactly" if exactly else "run"
        self._config = config
        if not is_module:
            return self._said(*self.turns.take(operation, config))
        try:
            self.turns.tell(operation, config)
        except EngineFailed as error:
            if not str(error).endswith(": out of memory"):
                raise
            return self._said(*self.turns.take("refused", "InternalError: out of memory"))
        if stop_ms:
            self.turns.bound(stop_ms, counts_waiting)
        begun = self._evaluated(_DECODER.raw_decode(config, len(_JS))[0], memory_limit_bytes)
        return self._said(*self.turns.go_on(*begun))

    def _said(self, lines: str, ended: bool) -> tuple[bytes, bool]:
        last = lines.rfind("\n") + 1
        if ended and lines.startswith(_THREW, last) and self.analyse is not None:
            lines = lines[:last] + self._corrected(lines[last:])
        return lines.encode(), ended

    def _corrected(self, line: str) -> str:
        """What a program threw, with the place that its text shows where the engine knows none."""
        try:
            config: dict[str, Any] = json.loads(self._config)
            given: dict[str, Any] = config.get("given") or {}
            module: dict[str, Any] = given.get("module") or {}
            prefix: int = module.get("prefix", 0)
            at, length = module.get("last", (0, 0))
            text: str = config["js"].encode()[prefix:].decode()
            corrected: Callable[..., str] = self.analyse.corrected
            return corrected(line, _without(text, at, length), _PLACE_MS, given.get("places"))
        except Exception:  # noqa: BLE001 -- a place is worth less than what was thrown
            return line

    def _evaluated(self, js: str, memory_limit_bytes: int) -> tuple[str, object]:
        """What the kernel is told of a module: the engine's promise, which is not looked at, or why there is none."""
        try:
            promise = self.context.module(js)
            return "watch" if self.turns.has_room(memory_limit_bytes) else "watch full", promise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the program ends with it
            # Of a text that the engine evaluates no error comes this way: these words are the engine's or Python's.
            said = error if type(error).__module__ == "_quickjs" else f"SyntaxError: {error}"
            return "refused", str(said)[:MESSAGE_CHARACTERS].encode("ascii", "backslashreplace").decode()


def _without(text: str, at: int, length: int) -> str:
    """A text without so many ASCII characters from a place in it, which is counted in UTF-16 units."""
    if not text.isascii():
        units = 0
        for index, character in enumerate(text):  # the codec cannot be imported here
            if units >= at:
                at = index
                break
            units += 2 if character > "\uffff" else 1
    return text[:at] + text[at + length :]


def _fix_time_zone() -> None:
    # The engine asks the C library for local time, which would open a file after the lock.
    os.environ["TZ"] = "UTC0"
    time.tzset()


def _load_analyser(location: dict[str, Any] | None) -> Any:
    if location is None:
        return None
    return load_source("analyse", location["path"]).load(location["site_paths"])


def _frames(lines: bytes) -> bytes:
    """Messages as one frame, or each as a frame of its own when they are long."""
    if len(lines) <= BATCH_BYTES:
        return _HEADER.pack(len(lines)) + lines
    return b"".join(_HEADER.pack(len(line)) + line for line in lines.split(b"\n"))


def _read(size: int) -> bytes:
    """At least one byte of what the host sends; does not return when the host has gone."""
    chunk = os.read(CHANNEL_FD, size)
    if not chunk:
        os._exit(0)
    return chunk


def _read_to(received: bytes | bytearray, end: int) -> bytearray:
    whole, at = bytearray(end), len(received)
    whole[:at] = received
    while at < end:
        chunk = _read(min(end - at, BATCH_BYTES))
        whole[at : at + len(chunk)] = chunk
        at += len(chunk)
    return whole


def _json_line(kind: bytes, value: object) -> bytes:
    return kind + json.dumps(value).encode()


def _frame(line: bytes) -> bytes:
    return _HEADER.pack(len(line)) + line


def _failure(error: Exception) -> bytes:
    # The engine throws null when it has no memory left for an error object.
    text = _OUT_OF_MEMORY if (said := str(error).strip()) == "null" else said
    name = "" if isinstance(error, EngineFailed) else type(error).__name__ + ": "
    origin = "request" if text == "kernel-error: unknown request" else "engine"
    # Words of the engine's or the kernel's own: what a program throws never comes this way.
    if text == _OUT_OF_MEMORY or text.endswith(": " + _OUT_OF_MEMORY):
        origin = "memory"
    return _json_line(b"F", {"message": (name + text)[:MESSAGE_CHARACTERS], "origin": origin})


def _write(data: bytes) -> None:
    try:
        written = os.write(CHANNEL_FD, data)
        while written < len(data):
            written += os.write(CHANNEL_FD, memoryview(data)[written:])
    except OSError:
        os._exit(0)


def new_lock(config: dict[str, Any], parent_pid: int) -> Lock:
    """The shared half of the lock-down applied, the final half made ready. Each worker dies with ``parent_pid``."""
    return load_source("lock", config["lock_path"]).Lock(config, parent_pid, load_source)


def enter(worker: Worker, lock: Lock, hello: bytes | None, channel: int, *, rehearsed: bool = True) -> None:
    """Lock this process onto `channel` and say hello; `hello` is the frame for when no layer is refused, if known."""
    refusals = lock.close(channel)
    if refusals or hello is None:
        layers = {**lock.layers, **refusals}
        refusal = lock.refusal(layers)
        if refusal is not None:
            _write(_frame(_failure(EngineFailed(refusal))))
            os._exit(0)
        hello = worker.hello(layers)
    if rehearsed:
        worker.rehearse()
    _write(hello)


def main() -> None:
    """One worker started by exec: argument 1 is the configuration, as ASCII JSON."""
    config = json.loads(sys.argv[1])
    channel = config["channel_fd"]
    try:
        worker = Worker(config)
        lock = new_lock(config, config["parent_pid"]) if os.uname().sysname == "Linux" else None
    except Exception as error:
        os.write(channel, _frame(_failure(error)))
        raise
    if lock is None:
        _enter_unlocked(worker, channel, required=config["isolation_required"])
    else:
        enter(worker, lock, None, channel)
    worker.serve(makes_engines=True)


def _enter_unlocked(worker: Worker, channel: int, *, required: bool) -> None:
    """Say hello where there is no lock-down: macOS and the BSDs, on which none of this has been tried."""
    if required:
        os.write(channel, _frame(_failure(EngineFailed("no isolation layer exists on this platform"))))
        os._exit(0)
    # No signal tells that the host has died, and a program that does not end never reads its channel.
    limits = importlib.import_module("resource")
    limits.setrlimit(limits.RLIMIT_CPU, (UNLOCKED_CPU_SECONDS, UNLOCKED_CPU_SECONDS))
    os.dup2(channel, CHANNEL_FD)
    worker.rehearse()
    _write(worker.hello({}))


if __name__ == "__main__":
    main()
