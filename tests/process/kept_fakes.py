"""Workers that are threads, run program after program, and end each as its text says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from codemode.protocol.framing import encode_frame
from codemode.testing.fake_worker import FakeWorker

_THROWN = {"name": "Error", "message": "m", "code": "", "stack": ""}


def says(number: int) -> bytes:
    """What a worker says that is ready for another program."""
    return encode_frame(b"N", b"%d" % number)


def returned() -> bytes:
    return encode_frame(b"V", b'{"value": "1", "unobserved": []}')


# What comes behind the result, by the end that a program's text names. After any of them but the first two the worker
# may have no other program.
AFTER_RESULT: dict[str, Callable[[int], bytes]] = {
    "good": says,
    "good, in two writes": says,
    "another number": lambda number: says(number + 1),
    "the number before": lambda number: says(number - 1),
    "no word": lambda _: encode_frame(b"N", b"x"),
    "a turn behind it": lambda number: encode_frame(b"T", b'{"in_flight": 0}') + says(number),
    "a result behind it": lambda number: returned() + says(number),
    "a frame behind that": lambda number: says(number) + encode_frame(b"L", b"{}"),
    "half a frame behind it": lambda number: says(number) + b"\0\0",
    "half a frame": lambda _: b"\0\0\0",
    "no frame": lambda _: b"\xff\xff\xff\xff",
}
BADLY = ("throws", "hangs up", "says rubbish", "hangs up behind its result")
DIES_READY = "hangs up when it is ready"
ENDS = (*AFTER_RESULT, *BADLY)
GOOD = ("good", "good, in two writes")


@dataclass
class Seen:
    """What the workers have run: number of the worker, number of its program, share and end that the text names."""

    programs: list[tuple[int, int, str, str]] = field(default_factory=list[tuple[int, int, str, str]])
    _numbers: count[int] = field(default_factory=count)

    def script(self, worker: FakeWorker) -> None:
        """Be one worker."""
        me, ended = next(self._numbers), 0
        worker.send_hello()
        while True:
            kind, body = worker.receive_message()
            assert (kind, body) == (b"N", {"number": ended})
            kind, body = worker.receive_message()
            if kind == b"A":
                worker.send_frame(b"a", {"js": body["source"], "facts": None})
                kind, body = worker.receive_message()
            assert kind == b"R"
            share, end = json.loads(body["js"].removeprefix("return "))
            self.programs.append((me, ended, share, end))
            ended += 1
            if not _end(worker, end, ended):
                return


def _end(worker: FakeWorker, end: str, ended: int) -> bool:
    """End a program; False: the worker is gone."""
    if end == "throws":
        worker.send_frame(b"X", _THROWN)
    elif end == "says rubbish":
        worker.send_frame(b"?", {})
    elif end == "hangs up":
        worker.close_channel()
        return False
    elif end in ("hangs up behind its result", DIES_READY):
        worker.send_bytes(returned() + (says(ended) if end == DIES_READY else b""))
        worker.close_channel()
        return False
    elif end == "good, in two writes":
        worker.send_bytes(returned())
        worker.send_bytes(says(ended))
    else:
        worker.send_bytes(returned() + AFTER_RESULT[end](ended))
    return True
