"""The command line with a person at the terminal, who is asked and answers."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import passing_time
import pytest
from command_line_shop import COMMAND, REFUND, SHOP
from suite import full_only

pytestmark = pytest.mark.usefixtures("folder")

WAIT_SECONDS = 60.0


class Terminal:
    """A command whose stdin is a terminal, with a person who reads and types."""

    def __init__(self, *arguments: str) -> None:
        self._person, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._terminal = terminal  # held open: what it echoes can be read when the command has ended, too
        self.err = ""

    def read_until(self, text: str) -> None:
        assert self.process.stderr is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.err:
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, deadline - time.monotonic()))
            assert ready, self.err
            piece = os.read(self.process.stderr.fileno(), 4096).decode()
            assert piece, self.err
            self.err += piece

    def type(self, text: str) -> None:
        """Type, and return when the terminal has it: it takes what is typed in its own time, and echoes it then."""
        os.write(self._person, text.encode())
        awaited, deadline = len(text.replace("\n", "\r\n")), time.monotonic() + WAIT_SECONDS
        while awaited > 0:
            assert select.select([self._person], [], [], max(0, deadline - time.monotonic()))[0]
            awaited -= len(os.read(self._person, awaited))

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        self.err += err
        return self.process.returncode, out

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_SECONDS)
        os.close(self._person)
        os.close(self._terminal)


@pytest.fixture
def terminal(folder) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_with(js: str, *arguments: str) -> Terminal:
        (folder / "program.ts").write_text(js)
        opened.append(Terminal("run", "program.ts", "--tools", "shop.py", *arguments))
        return opened[-1]

    yield open_with
    for one in opened:
        one.close()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("maybe", 1), *full_only(("YES", 0), ("n", 1), ("", 1))])
def test_a_person_decides(terminal, answer, code):
    person = terminal(REFUND)
    person.read_until("Allow this call? [y/N] ")
    assert '"order": "a"' in person.err
    assert '"cents": 500' in person.err
    person.type(answer + "\n")
    assert person.end() == (code, "refunded a\n" if code == 0 else "")


# When it is told to, lets an hour pass as soon as every clock stands still, and says that it has.
AN_HOUR_LATER = f"""
import os, signal, sys, threading, time
sys.path.append({str(Path(passing_time.__file__).parent)!r})
from passing_time import PassingTime

passing = PassingTime()

def _pass():
    while any(clock is not None and clock._running for clock in [one() for one in [*passing._clocks]]):
        time.sleep(0.001)
    passing.skip(3600)
    os.write(2, b"an hour later\\n")

signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=_pass, daemon=True).start())
"""


def test_several_questions_come_one_after_the_other_and_time_stands_still(terminal, folder):
    (folder / "shop.py").write_text(SHOP + AN_HOUR_LATER)
    js = "return await Promise.all(['a', 'b'].map((order) => tools.refund({order})))"
    person = terminal(js, "--timeout-ms", "60000")
    person.read_until("Allow this call? [y/N] ")
    assert person.err.count("Allow this call?") == 1
    person.process.send_signal(signal.SIGUSR1)
    person.read_until("an hour later")  # longer than the program has: a person's time is not the program's
    person.type("y\n")
    person.err = ""
    person.read_until("Allow this call? [y/N] ")
    person.type("y\n")
    code, out = person.end()
    assert code == 0, person.err
    assert json.loads(out) == ["refunded a", "refunded b"]


def test_ctrl_c_at_the_question_ends_it_at_once(terminal):
    person = terminal(REFUND)
    person.read_until("Allow this call? [y/N] ")
    person.process.send_signal(signal.SIGINT)
    code, out = person.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in person.err


@pytest.mark.parametrize("ahead", ["y\ny\ny\n", "y", *full_only("y\n", "yes\n\n\n")])
def test_what_was_typed_before_a_question_does_not_answer_it(terminal, ahead, tmp_path):
    typed = tmp_path / "typed"
    wait = f"await tools.until_there({json.dumps({'path': str(typed)})})"
    person = terminal(f"console.log('begun'); {wait}; return await tools.refund({{order: 'a'}})")
    person.type(ahead)
    person.read_until("begun")
    person.type(ahead)
    typed.touch()
    person.read_until("Allow this call? [y/N] ")
    person.type("n\n")
    assert person.end() == (1, "")


def test_an_answer_to_one_question_does_not_answer_the_next(terminal):
    js = "return (await Promise.allSettled(['a', 'b'].map((order) => tools.refund({order})))).map((one) => one.status)"
    person = terminal(js)
    person.read_until("Allow this call? [y/N] ")
    person.type("y\ny\n")
    person.err = ""
    person.read_until("Allow this call? [y/N] ")
    person.type("n\n")
    code, out = person.end()
    assert (code, json.loads(out)) == (0, ["fulfilled", "rejected"])
