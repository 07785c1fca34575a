"""Text that depends on a locale is that of en-US in UTC, or there is none: never another one in silence."""

from __future__ import annotations

import pytest
from module_servers import HUB, RESULT, answer

from codemode import (
    CodeModeError,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.errors import CodeModeSyntaxError

DATE = "new Date('2026-03-05T02:04:09Z')"
RIGHT = {
    f"{DATE}.toLocaleString()": "3/5/2026, 2:04:09 AM",
    f"{DATE}.toLocaleDateString('en-US')": "3/5/2026",
    f"{DATE}.toLocaleTimeString(['en-US'], {{ timeZone: 'UTC' }})": "2:04:09 AM",
    "new Date('2026-12-31T12:00:00Z').toLocaleTimeString()": "12:00:00 PM",
    f"{DATE}.toLocaleDateString('en-us', {{ year: 'numeric', month: 'numeric', day: 'numeric' }})": "3/5/2026",
    "new Date(NaN).toLocaleString()": "Invalid Date",
    "(1234567.8915).toLocaleString()": "1,234,567.892",
    "[1.005, 9.995, 0.004, 0.005, 1e-7].map((one) => one.toLocaleString('en', { maximumFractionDigits: 2 })).join()": (
        "1.01,10,0,0.01,0"
    ),
    "(0).toLocaleString('en-US', { minimumFractionDigits: 2 })": "0.00",
    "(-1234.5).toLocaleString('en', { maximumFractionDigits: 0 })": "-1,235",
    "(1234.5).toLocaleString(undefined, { useGrouping: false })": "1234.5",
    "(999).toLocaleString() + (1e21).toLocaleString()": "9991,000,000,000,000,000,000,000",
    "[NaN, 1 / 0, -0].map((one) => one.toLocaleString()).join()": "NaN,∞,-0",
    "(12345678901234567890n).toLocaleString('en-US')": "12,345,678,901,234,567,890",
    "[1234.5, null, 'a'].toLocaleString('en-US', { minimumFractionDigits: 2 })": "1,234.50,,a",
    "['item10', 'item9'].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).join()": "item9,item10",
    "['b', 'A', 'é', 'a', 'f', 'E'].sort((a, b) => a.localeCompare(b)).join()": "a,A,b,E,é,f",
    "'a'.localeCompare('Á', 'en-GB', { sensitivity: 'base' })": 0,
    "'a'.localeCompare('á', 'en', { sensitivity: 'case' })": 0,
    "'I'.toLocaleLowerCase('de') + 'i'.toLocaleUpperCase()": "iI",
}
# What is wrong, as a literal, and the same where nothing sees it before it runs.
WRONG = {
    f"{DATE}.toLocaleString('de-DE')": "de-DE",
    f"{DATE}.toLocaleString('en-US', {{ timeZone: 'America/New_York' }})": "timeZone",
    f"{DATE}.toLocaleDateString('en-US', {{ weekday: 'long' }})": "weekday",
    f"{DATE}.toLocaleTimeString('en-US', {{ hour12: false }})": "hour12",
    f"{DATE}.toLocaleDateString(undefined, {{ dateStyle: 'medium' }})": "dateStyle",
    "(5).toLocaleString('en-US', { style: 'currency', currency: 'USD' })": "style",
    "(5).toLocaleString('en-IN')": "en-IN",
    "(5n).toLocaleString('fr')": "fr",
    "[5].toLocaleString(['de'])": "de",
    "'a'.localeCompare('b', 'sv')": "sv",
    "'a'.localeCompare('b', undefined, { caseFirst: 'upper' })": "caseFirst",
    "'i'.toLocaleUpperCase('tr-TR')": "tr-TR",
}


def test_what_there_is_is_as_in_english():
    tool = create_code_mode_tool([])
    for expression, text in RIGHT.items():
        assert tool.execute_sync({"js": f"return {expression}"}) == text, expression


def test_a_literal_that_would_be_ignored_is_reported_before_anything_runs():
    calls: list[str] = []

    def note() -> None:
        calls.append("note")

    tool = create_code_mode_tool([note])
    for expression, named in WRONG.items():
        with pytest.raises(CodeModeSyntaxError) as raised:
            tool.execute_sync({"js": f"await tools.note();\nreturn {expression}"})
        assert raised.value.details["line"] == 2, expression
        assert named in raised.value.message, expression
        assert "en-US" in raised.value.message, expression
    assert calls == []


def test_what_is_computed_throws_an_error_that_names_it():
    tool = create_code_mode_tool([])
    for expression, named in WRONG.items():
        computed = expression.replace("'en-US', {", "...['en-US'], {").replace("(undefined, {", "(...[undefined], {")
        computed = computed.replace("('", "(...['").replace("')", "'])") if computed == expression else computed
        program = f"try {{ return {expression} }} catch (error) {{ return error.name + ' ' + error.message }}"
        told = tool.execute_sync({"js": program})
        assert told.startswith("RangeError"), expression
        assert named in told, expression
    with pytest.raises(CodeModeError, match='the locale "de" is not available here') as raised:
        tool.execute_sync({"js": "const locale = ['d', 'e'].join(''); return (5).toLocaleString(locale)"})
    assert not isinstance(raised.value, CodeModeSyntaxError)


def test_options_that_are_inherited_or_read_late_are_seen():
    tool = create_code_mode_tool([])
    for options in ("Object.create({ timeZone: 'Asia/Tokyo' })", "{ get timeZone() { return 'Asia/Tokyo' } }"):
        with pytest.raises(CodeModeError, match="timeZone"):
            tool.execute_sync({"js": f"return new Date(0).toLocaleString('en-US', {options})"})


def test_a_method_of_the_programs_own_is_left_alone():
    js = "const price = { toLocaleString(locale) { return locale } }; return price.toLocaleString('de-DE')"
    assert create_code_mode_tool([]).execute_sync({"js": js}) == "de-DE"


def test_every_surface_reports_it_before_anything_runs_and_says_what_there_is():
    expression = "new Date(0).toLocaleString('de-DE')"
    script = create_code_call_tools([])
    told = script.execute_sync({"script": f"return {expression}"})
    assert (told["status"], "de-DE" in told["error"]["message"]) == ("syntax_error", True)
    pair = create_exec_wait_tools([])
    ended = pair.exec.execute_sync({"code": f"return {expression}"})
    assert (ended["status"], "de-DE" in ended["error"]) == ("failed", True)
    [said] = answer(f"{HUB}{RESULT}{expression}")["diagnostics"]
    assert (said["code"], "de-DE" in said["message"]) == ("SYNTAX_ERROR", True)
    descriptions = (
        create_code_mode_tool([]).description,
        pair.exec.description,
        script.tools[2].description,
        create_modules_tool([]).description,
    )
    for description in descriptions:
        assert "UTC and en-US only" in description
