"""What a model is told when its program failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

import codemode
from codemode import CodeModeError, CodeModeTimeoutError, CodeModeToolError, errors
from codemode.errors import (
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeFetchError,
    CodeModeIllegalAccessError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)
from codemode.execution.outcome_texts import MAX_FAILURE_CHARACTERS, describe_stopped_program, failure_text
from codemode.protocol.call_status import make_detached_call_error
from codemode.protocol.ending_errors import make_syntax_error

JS = "const a = 1;\nreturn a.b.c;\nlast"
CLASSES = sorted(
    (  # of programs: what a store refuses is for whoever asked it
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, CodeModeError) and value.__module__ == CodeModeError.__module__
    ),
    key=lambda cls: cls.__name__,
)


def failed(error, *calls):
    error.calls = tuple(
        {"id": f"c:tool-{n}", "name": name, "status": status, "is_started": begun}
        for n, (name, status, begun) in enumerate(calls, 1)
    )
    return error


def test_everything_in_its_place():
    error = CodeModeError("no property", details={"name": "TypeError", "line": 2, "column": 8, "stack": "/host/x"})
    failed(error, ("pay", "fulfilled", True), ("mail", "unknown", True), ("check", "rejected", True))
    assert failure_text(error, JS).split("\n") == [
        "TypeError: no property",
        "  at line 2, column 8:",
        "    return a.b.c;",
        "           ^",
        "Already done, do not repeat: pay",
        "May or may not have happened, find out before repeating: mail",
        "Failed: check",
        "Hint: Correct the program at that place and send it without the calls that are done: use their results.",
    ]


@each_row(
    "text, is_python",
    [
        ("def f(x):", True),
        ("for x in range(3):", True),
        ("    if a == 1:  # one", True),
        ("import json", True),
        ("from os import path", True),
        ("for (const x of y) {", False),
        ('import fs from "fs"', False),
        ("const a = b ? c :", False),
        ("default:", False),
        ("if (a) b;", False),
    ],
)
def test_a_program_in_python_is_told_so(text, is_python):
    error = CodeModeSyntaxError("Unexpected identifier", details={"line": 2, "column": 1})
    assert ("a program is JavaScript" in failure_text(error, f"const a = 1;\n{text}")) is is_python
    assert "a program is JavaScript" not in failure_text(error, None)


def test_a_name_that_is_not_there_is_answered_with_what_is():
    error = CodeModeError("setTimeout is not defined", details={"name": "ReferenceError", "line": 1, "column": 1})
    assert "calls a tool on `tools`." in failure_text(error, JS).split("\n")[-1]


@pytest.mark.parametrize("js", [None, ""])
@pytest.mark.parametrize("line", [1, 7])
def test_without_the_program_the_place_is_named_alone(js, line):
    error = CodeModeError("no property", details={"name": "TypeError", "line": line, "column": 8})
    assert failure_text(error, js).split("\n")[:3] == [
        "TypeError: no property",
        f"  at line {line}, column 8",
        "No call was made.",
    ]


def test_what_was_ended_from_outside_names_its_calls():
    error = failed(CodeModeError("x"), ("pay", "fulfilled", True), ("mail", "unknown", True))
    assert describe_stopped_program("this run was aborted: it is late", error).split("\n") == [
        "this run was aborted: it is late",
        "Already done, do not repeat: pay",
        "May or may not have happened, find out before repeating: mail",
    ]
    assert describe_stopped_program("gone", None) == "gone"
    assert len(describe_stopped_program("\x1b" * 5_000, error)) == 2_000


@each_row("cls", CLASSES)
def test_every_class_has_a_hint_of_its_own(cls):
    text = failure_text(failed(cls("message")), JS)
    hints = [failure_text(failed(other("message")), JS).split("\n")[-1] for other in CLASSES if other is not cls]
    assert text.split("\n")[-1].startswith("Hint: ")
    assert text.split("\n")[-1] not in hints
    assert text.startswith(f"{cls.__name__}: ")
    assert "No call was made." in text
    assert text == failure_text(failed(cls("message")), None)


@each_row(
    "error",
    [
        CodeModeToolError("/srv/secret.py", code=HOST_TOOL_ERROR, details={"tool_name": "pay"}),
        CodeModeWorkerError("no worker started: /srv/secret.py"),
        codemode.CodeModeProtocolError("/srv/secret.py"),
        ValueError("/srv/secret.py"),
        KeyError("/srv/secret.py"),
    ],
)
def test_nothing_of_the_host_is_shown(error):
    error.__cause__ = RuntimeError("/srv/secret.py")
    text = failure_text(error, JS)
    assert "secret" not in text
    assert "srv" not in text


@pytest.mark.parametrize(("name", "shown"), [("pay", "tools.pay"), ("host:core:pay", "host:core:pay")])
def test_a_failed_tool_is_named(name, shown):
    error = CodeModeToolError("x", code=HOST_TOOL_ERROR, details={"tool_name": name})
    assert failure_text(error, JS).startswith(f"CodeModeToolError: {shown} failed\n")


def test_every_line_with_a_problem_is_shown_once():
    problems = [{"message": "m", "line": line, "column": 1} for line in (1, 1, 2, 3, 99)]
    text = failure_text(CodeModeSyntaxError("m", details={"problems": problems, "line": 1, "column": 1}), JS)
    assert [line for line in text.split("\n") if line.startswith("  at")] == [
        f"  at line {line}, column 1:" for line in (1, 2, 3)
    ]


def test_questions_to_the_catalog_and_calls_never_begun_are_left_out():
    error = failed(CodeModeTimeoutError("late"), ("$search", "fulfilled", True), ("pay", "unknown", False))
    assert "No call was made." in failure_text(error, JS)


@pytest.mark.parametrize("column", [1, 5000, 9999, 10**9])
def test_a_long_line_is_cut_around_the_place(column):
    js = "x" * 4999 + "HERE" + "y" * 5000
    text = failure_text(CodeModeError("m", details={"line": 1, "column": column}), js)
    assert len(text) < 1000
    if column == 5000:
        source, mark = text.split("\n")[2:4]
        assert source[mark.index("^") :].startswith("HERE")


def test_what_is_done_survives_a_message_that_fills_the_space():
    error = CodeModeError("m" * 100_000, details={"name": "n" * 100_000, "line": 1, "column": 1})
    failed(error, *[("pay", "fulfilled", True)] * 300, *[("mail", "unknown", True)] * 300)
    text = failure_text(error, "s" * 100_000)
    assert len(text) <= MAX_FAILURE_CHARACTERS
    assert "Already done, do not repeat: pay; pay" in text
    assert "May or may not have happened, find out before repeating: mail; mail" in text
    assert " more (pay)\n" in text
    assert text.split("\n")[-1].startswith("Hint: ")


@given(st.text(), st.text(), st.integers(-1, 5), st.integers(-1, 50), st.text())
def test_any_text_gives_visible_text_within_the_limit(message, name, line, column, js):
    error = CodeModeError(message, details={"name": name, "line": line, "column": column})
    text = failure_text(failed(error, (name, "fulfilled", True)), js)
    assert len(text) <= MAX_FAILURE_CHARACTERS
    assert text.replace("\n", "").replace("\t", "").isprintable()


LARGE = {"bytes": 9, "max_bytes": 5}


@each_row(
    "error, hint",
    [
        (CodeModeToolError("x", code=HOST_TOOL_ERROR), "The tool itself failed. Try other input, or do without it."),
        (CodeModeFetchError("x", code=HOST_FETCH_ERROR), "The server did not answer as expected"),
        (
            CodeModeToolError('Invalid output of tool "pay": value: no', details={"schema": "output"}),
            "This is not the program's fault: the tool broke",
        ),
        (CodeModeSerializationError("the program's result has 9 bytes", details=LARGE), "Return less: filter, slice"),
        (
            CodeModeSerializationError("the input of tool 'pay' has 9 bytes", details={**LARGE, "kind": "tool"}),
            "Send less in one call",
        ),
        (
            CodeModeToolError('Invalid input for tool "pay": value: no', details={"schema": "input"}),
            "Check the tool's name",
        ),
        (CodeModeToolError("order a is locked"), "The tool says what is wrong. Change the call accordingly"),
        (CodeModeSerializationError("the program's result is not JSON"), "Only JSON crosses"),
    ],
)
def test_the_hint_says_whose_fault_it_was(error, hint):
    assert failure_text(error, JS).split("\n")[-1].startswith(f"Hint: {hint}")


def test_a_program_that_has_called_something_is_not_told_that_nothing_ran():
    for error in (CodeModeSyntaxError("m"), CodeModeIllegalAccessError("m")):
        text = failure_text(failed(error, ("agent", "rejected", True)), JS)
        assert "Nothing of the program ran" not in text


def test_a_program_that_went_on_after_a_pause_is_not_sent_again():
    error = CodeModeConcurrencyError("no worker", details={"is_resumed": True})
    text = failure_text(failed(error, ("pay", "fulfilled", True)), JS)
    assert text.endswith("Say so, and do not send it again.")


def detached(name, status):
    return {"id": "o:tool-1", "kind": "tool", "name": name, "status": status}


def test_a_call_that_nobody_awaited_is_named_alone():
    error = make_detached_call_error([detached("pay", "unobserved")])
    assert "pay (unobserved)" in error.message
    assert failure_text(error, JS).startswith(f"{type(error).__name__}: {error.message.replace(' (unobserved)', '')}\n")


def test_calls_that_nobody_awaited_keep_their_names_and_another_status():
    calls = [detached("a (unobserved)", "pending"), *(detached(f"b{number}", "pending") for number in range(6))]
    text = failure_text(make_detached_call_error(calls), JS)
    assert (
        "every call: a (unobserved) (pending), b0 (pending), b1 (pending), b2 (pending), b3 (pending) and 2 more."
        in text
    )
    without = CodeModeDetachedBridgeRequestError("a call was not awaited", details={"calls": "none"})
    assert failure_text(without, JS).startswith("CodeModeDetachedBridgeRequestError: a call was not awaited\n")


def test_each_problem_has_a_line_of_its_own():
    problems = [{"message": f"m{line}", "line": line, "column": 1} for line in (1, 2)]
    text = failure_text(make_syntax_error(problems), JS)
    assert text.startswith("CodeModeSyntaxError:\nline 1, column 1: m1\nline 2, column 1: m2\n  at line 1")


def test_a_resume_that_failed_does_not_say_that_no_call_was_made():
    error = CodeModeConcurrencyError("no worker", details={"is_resumed": True})
    text = failure_text(error, JS)
    assert "No call was made." not in text
    assert "Calls made before the pause may be done; do not repeat them." in text
