"""The command line as a person uses it: files, exit codes, what goes to stdout and what to stderr."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codemode.cli import main

COMMAND = [sys.executable, "-W", "error", "-m", "codemode"]
WAIT_SECONDS = 30.0
TOOLS = '''
"""Tools of a shop."""
import asyncio
from os.path import exists, join
from codemode import Tool, request_interrupt, tool

refunded = []

def stock(product: str) -> int:
    """How many are in stock."""
    return {"bolt": 120}[product]

async def later(n: int = 1) -> int:
    return n

async def until_there(path: str) -> None:
    async with asyncio.timeout(60):
        while not exists(path):
            await asyncio.sleep(0.005)

@tool(needs_approval=True)
def refund(order: str, cents: int = 500) -> str:
    refunded.append(order)
    return f"refunded {order}"

def pause() -> str:
    request_interrupt({"kind": "sign-in"})

def _private() -> None: ...

class Shop: ...
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop.py").write_text(TOOLS)
    return tmp_path


@pytest.fixture
def codemode(capsys) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def run(codemode, folder) -> Callable[..., tuple[int, str, str]]:
    def run_js(js: str, *arguments: str, tools: str = "shop.py") -> tuple[int, str, str]:
        (folder / "program.ts").write_text(js, encoding="utf-8")
        return codemode("run", "program.ts", "--tools", tools, *arguments)

    return run_js


def test_the_result_goes_to_stdout_and_the_rest_to_stderr(run):
    js = "const n: number = await tools.stock({product: 'bolt'}); console.log('n', n); return {n}"
    code, out, err = run(js)
    assert code == 0
    assert json.loads(out) == {"n": 120}
    called, ended, said = err.splitlines()
    assert called == '-> stock {"product": "bolt"}'
    assert ended.startswith("<- stock fulfilled in ")
    assert said == "   log: n 120"


def test_text_is_printed_as_text_and_nothing_moves_the_cursor(run):
    code, out, _ = run("return 'ünï\\n\\x1b[31mred\\u202e'")
    assert (code, out) == (0, "ünï\n\\u001b[31mred\\u202e\n")
    _, _, err = run("console.log('\\x1b[2J'); const n = '\\x1b]0;x'; await tools[n]().catch(() => 0)")
    assert "\x1b" not in err


def test_json_is_one_object(run):
    code, out, _ = run("return [1, 'ü']", "--json")
    assert (code, json.loads(out)) == (0, {"status": "completed", "result": [1, "ü"]})
    code, out, err = run("await tools.stock({product: 'bolt'});\nnull.x", "--json")
    failed = json.loads(out)
    assert code == 1
    assert (failed["status"], failed["error"]["name"], failed["error"]["line"]) == ("failed", "CodeModeError", 2)
    assert failed["calls"][0]["name"] == "stock"
    assert failed["error"]["text"] in err


def test_a_failed_program_is_explained(run):
    code, out, err = run("await tools.stock({product: 'bolt'});\nreturn await tools.stock({product: ['x'][0]})")
    assert (code, out) == (1, "")
    assert "<- stock rejected" in err
    assert "KeyError: 'x'" in err, "the owner of the tools may know"
    assert "at line 2, column" in err
    assert "Already done, do not repeat: stock" in err


def test_the_timeline_comes_last(run):
    _, _, err = run("await tools.later(); return 1", "--trace")
    assert err.splitlines()[-2].startswith("completed in ")
    assert "later" in err.splitlines()[-1]


def test_the_deadline(run):
    code, _, err = run("for (;;);", "--timeout-ms", "200")
    assert code == 1
    assert "CodeModeTimeoutError: the program did not end within 200 ms" in err


REFUND = "return await tools.refund({order: 'a'})"


def test_approve_all_and_deny(run):
    assert run(REFUND, "--approve", "all")[:2] == (0, "refunded a\n")
    code, out, err = run(REFUND, "--approve", "deny")
    assert (code, out) == (1, "")
    assert "was denied" in err


def test_without_a_terminal_nothing_is_approved(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, err = run(REFUND)
    assert (code, out) == (1, "")
    assert "denied: stdin is no terminal" in err
    assert "Allow this call?" not in err
    assert '"cents": 500' in err, "the whole input is shown, with its defaults"


def test_an_abbreviated_option_is_none(run):
    assert run("return 1", "--trac")[0] == 2


def test_the_package_itself_is_the_command():
    done = subprocess.run([sys.executable, "-m", "codemode", "--version"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.split()[0]) == (0, "codemode")


def test_a_program_that_pauses_has_an_exit_code_of_its_own(run):
    code, out, err = run("return await tools.pause()")
    assert code == 3
    assert json.loads(out)["interrupt"]["payload"] == {"kind": "sign-in"}
    assert "paused: waits for pause" in err


def test_a_program_from_stdin_and_without_tools():
    done = subprocess.run([*COMMAND, "run", "-"], input="return 6 * 7", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "missing.ts"], "missing.ts cannot be read"),
        (["run", "binary.ts"], "binary.ts is not UTF-8"),
        (["run", "ok.ts", "--tools", "missing.py"], "there is no tools file missing.py"),
        (["run", "ok.ts", "--tools", "ok.ts"], "ok.ts is no Python file"),
        (["run", "ok.ts", "--tools", "empty.py"], "empty.py has no tools"),
        (["run", "ok.ts", "--tools", "broken.py"], "does not load: ZeroDivisionError: division by zero (line 2)"),
        (["run", "ok.ts", "--tools", "syntax.py"], "syntax.py does not load"),
        (["run", "ok.ts", "--tools", "exits.py"], "exits.py does not load: SystemExit: 0"),
        (["run", "ok.ts", "--tools", "numbers.py"], "int is not a tool"),
        (["run", "ok.ts", "--timeout-ms", "0"], "execution_policy.timeout_ms"),
        (["run", "ok.ts", "--timeout-ms", "x"], "invalid int value"),
        (["run", "ok.ts", "--approve", "maybe"], "invalid choice"),
        (["run"], "required"),
        (["describe"], "required"),
        ([], "required"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_with_exit_code_2(codemode, folder, arguments, says):
    files = {
        "ok.ts": "return 1", "empty.py": "_x = 1\nfrom os.path import join\n", "broken.py": "x = 1\n1 / 0\n",
        "syntax.py": "def (", "exits.py": "raise SystemExit(0)", "numbers.py": "tools = [3]",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "binary.ts").write_bytes(b"\xff\xfe\x00")
    code, out, err = codemode(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (TOOLS, {"stock", "later", "until_there", "refund", "pause"}),
        ("def a(): ...\ndef b(): ...\ntools = [b]", {"b"}),
        ("def _a(): ...\ntools = {'renamed': _a}", {"renamed"}),
        ("def tools(): ...", {"tools"}),
        ("from codemode import Tool\nx = Tool('named', execute=None)", {"named"}),
        ("import other\ndef a(): return other.b()", {"a"}),
    ],
)
def test_which_tools_a_file_has(codemode, folder, text, names):
    (folder / "given.py").write_text(text)
    (folder / "other.py").write_text("def b(): return 1")
    code, out, err = codemode("describe", "--tools", "given.py")
    assert code == 0
    assert all(f"{name}(" in out for name in names)
    assert f"{len(names)} tool" in err


def test_describe_shows_what_the_model_sees_and_its_size(codemode):
    code, out, err = codemode("describe", "--tools", "shop.py")
    assert code == 0
    assert "declare const tools: {" in out
    assert "/** How many are in stock. */" in out
    assert f"5 tools; {len(out) - 1:,} characters, about " in err


def test_help_names_the_exit_codes(codemode):
    code, out, _ = codemode("run", "--help")
    assert code == 0
    assert all(f"\n  {number} " in out for number in (0, 1, 2, 3, 130))
    assert "codemode 0." in codemode("--version")[1]


# --- with a person at the terminal


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


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("YES", 0), ("n", 1), ("", 1), ("maybe", 1)])
def test_a_person_decides(terminal, answer, code):
    person = terminal(REFUND)
    person.read_until("Allow this call? [y/N] ")
    assert '"order": "a"' in person.err
    assert '"cents": 500' in person.err
    person.type(answer + "\n")
    assert person.end() == (code, "refunded a\n" if code == 0 else "")


def test_several_questions_come_one_after_the_other_and_time_stands_still(terminal):
    js = "return await Promise.all(['a', 'b'].map((order) => tools.refund({order})))"
    person = terminal(js, "--timeout-ms", "700")
    person.read_until("Allow this call? [y/N] ")
    assert person.err.count("Allow this call?") == 1
    time.sleep(0.9)  # longer than the program has: a person's time is not the program's
    person.type("y\n")
    person.err = ""
    person.read_until("Allow this call? [y/N] ")
    person.type("y\n")
    code, out = person.end()
    assert (code, json.loads(out)) == (0, ["refunded a", "refunded b"])


def test_ctrl_c_at_the_question_ends_it_at_once(terminal):
    person = terminal(REFUND)
    person.read_until("Allow this call? [y/N] ")
    person.process.send_signal(signal.SIGINT)
    code, out = person.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in person.err


@pytest.mark.parametrize("ahead", ["y\n", "y\ny\ny\n", "y", "yes\n\n\n"])
def test_05_what_was_typed_before_a_question_does_not_answer_it(terminal, ahead, tmp_path):
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


def test_05_an_answer_to_one_question_does_not_answer_the_next(terminal):
    js = "return (await Promise.allSettled(['a', 'b'].map((order) => tools.refund({order})))).map((one) => one.status)"
    person = terminal(js)
    person.read_until("Allow this call? [y/N] ")
    person.type("y\ny\n")
    person.err = ""
    person.read_until("Allow this call? [y/N] ")
    person.type("n\n")
    code, out = person.end()
    assert (code, json.loads(out)) == (0, ["fulfilled", "rejected"])
