"""The command line as a person uses it: files, exit codes, what goes to stdout and what to stderr."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from command_line_shop import COMMAND, REFUND, SHOP
from suite import full_only

from codemode.cli import main

pytestmark = pytest.mark.usefixtures("folder")


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


PICTURE = """
from codemode import MediaContent

def pic() -> MediaContent:
    return MediaContent(b"\\x89PNG", "image/png", name="p.png")
"""


@pytest.mark.parametrize(
    ("js", "shows_picture"),
    [("return {small: await tools.pic()}", True), ("content(await tools.pic()); return {small: 1}", False)],
)
def test_media_content_is_printed_as_a_description(run, folder, js, shows_picture):
    (folder / "picture.py").write_text(PICTURE)
    description = {"content": 1, "kind": "image", "mimeType": "image/png", "bytes": 4, "name": "p.png"}
    value = {"small": description if shows_picture else 1}
    code, out, err = run(js, tools="picture.py")
    assert (code, json.loads(out)) == (0, value)
    assert err.splitlines()[-1] == f"note: the bytes are not printed: {json.dumps(description)}"
    code, out, _ = run(js, "--json", tools="picture.py")
    assert (code, json.loads(out)) == (0, {"status": "completed", "result": value})


@pytest.mark.parametrize(
    "arguments",
    [
        *full_only(["describe", "--tools", "shop.py"]),
        ["run", "-", "--tools", "shop.py"],
        ["mcp", "list", "--config", "mcp.json"],
    ],
)
def test_nothing_is_said_of_output_that_nobody_reads_any_more(folder, arguments):
    (folder / "mcp.json").write_text('{"mcpServers": {"none": {"command": "none"}}}', encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments], input=b"return 1", stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == 141, done.stderr
    assert b"pipe" not in done.stderr.lower()
    assert b"Traceback" not in done.stderr


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


def test_the_trace_ends_with_the_traceback_of_a_failed_tool(run):
    _, _, err = run("return await tools.stock({ product: 'nut' })", "--trace")
    head, _, traceback = err.partition("stock raised:\n")
    assert "1 call" in head
    assert 'shop.py"' in traceback
    assert "return {" in traceback
    assert "codemode/tools" not in traceback
    assert traceback.endswith("KeyError: 'nut'\n")


def test_the_deadline(run):
    code, _, err = run("for (;;);", "--timeout-ms", "200")
    assert code == 1
    assert "CodeModeTimeoutError: the program did not end within 200 ms" in err


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
    done = subprocess.run([sys.executable, "-m", "codemode", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, "codemode")


def test_a_program_that_pauses_has_an_exit_code_of_its_own(run):
    code, out, err = run("return await tools.pause()")
    assert code == 3
    assert json.loads(out)["interrupt"]["payload"] == {"kind": "sign-in"}
    assert "paused: waits for pause" in err


def test_who_forgets_the_tools_is_told_how_to_name_them(codemode, folder):
    (folder / "program.ts").write_text("return await tools.stock({ product: 'bolt' });", encoding="utf-8")
    code, _, err = codemode("run", "program.ts")
    assert code == 1
    assert err.endswith("codemode: no tools; name a file that defines them with --tools FILE\n")
    (folder / "program.ts").write_text("return nothing;", encoding="utf-8")
    assert "--tools" not in codemode("run", "program.ts")[2]


def test_a_program_from_stdin_and_without_tools():
    done = subprocess.run([*COMMAND, "run", "-"], input="return 6 * 7", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "missing.ts"], "missing.ts cannot be read"),
        (["run", "binary.ts"], "binary.ts is not UTF-8"),
        (["run", "ok.ts", "--tools", "missing.py"], "tools file missing.py does not exist"),
        (["run", "ok.ts", "--tools", "ok.ts"], "ok.ts is not a Python file"),
        (["run", "ok.ts", "--tools", "empty.py"], "empty.py has no tools"),
        (["run", "ok.ts", "--tools", "broken.py"], "does not load: ZeroDivisionError: division by zero (line 2)"),
        (["run", "ok.ts", "--tools", "syntax.py"], "syntax.py does not load"),
        (["run", "ok.ts", "--tools", "exits.py"], "exits.py does not load: SystemExit: 0"),
        (["run", "ok.ts", "--tools", "numbers.py"], "got builtins.int"),
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
        (SHOP, {"stock", "later", "until_there", "refund", "pause"}),
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
