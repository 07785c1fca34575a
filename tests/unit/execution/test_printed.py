"""What a model reads of the console of its program, and of a last line whose value nobody gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeError, ModelOutput
from codemode.errors import CodeModeDetachedBridgeRequestError
from codemode.execution.large_results import (
    MAX_CONSOLE_CHARACTERS,
    escape_and_shorten_console,
    suggest_awaiting_last_call,
)
from codemode.execution.outcome import RunOutcome
from codemode.execution.outcome_texts import (
    MAX_FAILURE_CHARACTERS,
    describe_failure_without_console,
    describe_missing_result,
    failure_text,
)
from codemode.surfaces.code_mode.model_output import ModelOutputFormatter, OneCallOutputFormatter
from codemode.trace.events import ConsoleEvent
from codemode.trace.trace import Trace

MAIN = "async function main() {\n  return 1;\n}\n"


def lines(*texts, level="log"):
    head = {"invocation_id": "i", "outer_tool_call_id": "c", "timestamp_ms": 0.0}
    fields = {name: value for name, value in head.items() if name in ConsoleEvent.__dataclass_fields__}
    return tuple(ConsoleEvent(**fields, level=level, text=text) for text in texts)


def test_lines_stand_as_they_were_printed_with_their_level():
    assert escape_and_shorten_console([*lines("a", "b\tc"), *lines("d", level="error")]) == "a\nb\tc\n[error] d"
    assert escape_and_shorten_console(()) == ""


def test_what_cannot_be_seen_is_shown_as_an_escape():
    assert escape_and_shorten_console(lines("\x1b[2Ja\u202eb")) == "\\u001b[2Ja\\u202eb"


@given(st.lists(st.text(), max_size=20), st.integers(0, 20_000))
def test_a_console_has_at_most_4000_characters(texts, more):
    assert len(escape_and_shorten_console(lines(*texts, "\x00" * more))) <= MAX_CONSOLE_CHARACTERS


def test_of_a_long_console_beginning_and_end_are_kept():
    text = escape_and_shorten_console(lines("first", "x" * 100_000, "last"))
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    assert "characters left out" in text


@each_row(
    "js, instead",
    [
        (MAIN + "main();", "`return await main();`"),
        (MAIN + "main()\n\n", "`return await main();`"),
        (MAIN + "void main();", "`return await main();`"),
        (MAIN + "main().catch(console.error);", "`return await main();`"),
        ("const run = async () => 1; run();", "`return await run();`"),
        ("(async () => {\n  await tools.x();\n})();", "`return await (async () => {...})();`"),
        (MAIN + "return main();", None),
        (MAIN + "await main();", None),
        (MAIN + "return await main();", None),
        ("tools.x();", None),
        ("start();", None),
        ("function f() {}\nif (x) { f(); }", None),
        ("[1].map(function () {\n})()", None),
        ("", None),
        ("(" * 5000 + "})()", None),
    ],
)
def test_a_last_call_whose_value_nobody_gets(js, instead):
    assert suggest_awaiting_last_call(js) == instead


def test_who_fails_is_told_what_was_printed_after_the_rest():
    error = CodeModeError("boom")
    assert failure_text(error, "throw 1") == describe_failure_without_console(error, "throw 1")
    error.trace = Trace.__new__(Trace)
    object.__setattr__(error.trace, "console", lines("half way"))
    text = failure_text(error, "throw 1")
    assert text == describe_failure_without_console(error, "throw 1") + "\nIt had printed:\nhalf way"
    object.__setattr__(error.trace, "console", lines("y" * 50_000))
    assert len(failure_text(error, "x" * 5000)) <= MAX_FAILURE_CHARACTERS + MAX_CONSOLE_CHARACTERS + 20


def test_a_program_that_leaves_main_behind_is_told_to_return_it():
    error = CodeModeDetachedBridgeRequestError(
        "calls were left", details={"calls": [{"name": "x", "status": "pending"}]}
    )
    assert "write `return await main();` instead" in failure_text(error, MAIN + "main();")
    assert "Await every call" in failure_text(error, "tools.x();")


def test_a_program_without_a_result_is_told_what_there_is_in_place_of_one():
    paid = {"id": "c:tool-1", "name": "pay", "status": "fulfilled", "is_started": True, "input": "{}", "result": "7"}
    read = {**paid, "name": "stock", "reads_only": True}
    told = "The program returned nothing. Only what it returns is its result: end it with `return`."
    table = [
        ("nothing", {}, told),
        ("printed", {"console": lines("seen")}, f"{told}\nIt had printed:\nseen"),
        ("a last value", {"last_value": "[1]"}, f"{told}\nIts last statement has this value: [1]"),
        ("calls", {"summaries": (paid,)}, f"{told}\nAlready done, do not repeat: pay({{}}) -> 7"),
        ("a call that reads", {"summaries": (read,)}, f"{told}\nDone, only read: stock({{}}) -> 7"),
        ("one that reads, printed", {"summaries": (read,), "console": lines("7")}, f"{told}\nIt had printed:\n7"),
    ]
    for name, fields, expected in table:
        outcome = RunOutcome("completed", "c", returned_nothing=True, **fields)
        assert describe_missing_result(outcome, "1") == expected, name
    outcome = RunOutcome("completed", "c", returned_nothing=True)
    assert "`return await main();`" in describe_missing_result(outcome, MAIN + "main();")


def test_a_program_that_returned_null_has_a_result():
    assert describe_missing_result(RunOutcome("completed", "c"), "return null") == ""
    printed_too = RunOutcome("completed", "c", console=lines("seen"))
    assert describe_missing_result(printed_too, "return null") == "The program returned null. It had printed:\nseen"
    assert describe_missing_result(RunOutcome("completed", "c", value=0, console=lines("seen")), "return 0") == ""


@pytest.mark.parametrize("kind", [ModelOutputFormatter, OneCallOutputFormatter])
def test_nothing_is_shown_with_what_was_printed_to_the_call_it_came_from_alone(kind):
    outputs = kind(ModelOutput(), lambda _name: None)
    outputs.remember_run("c1", None, None, "It had printed: a")
    assert outputs.format(None, "c1") == {"type": "text", "value": "It had printed: a"}
    assert outputs.format(None, "c2") == {"type": "json", "value": None}
    assert outputs.format(None, None) == {"type": "json", "value": None}
    assert outputs.format(0, "c1") == {"type": "json", "value": 0}


def test_of_two_runs_of_one_id_that_gave_nothing_nobody_is_told():
    outputs = ModelOutputFormatter(ModelOutput(), lambda _name: None)
    outputs.remember_run("c1", None, None, "")
    outputs.remember_run("c1", None, None, "secret of the second")
    assert outputs.format(None, "c1") == {"type": "json", "value": None}


def test_beside_a_summary_it_is_a_note():
    outputs = ModelOutputFormatter(ModelOutput(include_nested_tool_summary=True), lambda _name: None)
    outputs.remember_run("c1", None, None, "It had printed: a")
    assert outputs.format(None, "c1")["value"] == {"result": None, "nestedTools": [], "note": "It had printed: a"}
