"""What is known of a program that is a module before it runs: enough, or it does not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from invocation_settings import SETTINGS
from suite import each_row

from codemode.errors import CodeModeError, CodeModeIllegalAccessError
from codemode.execution.programs import ProgramChecker
from codemode.protocol import events
from codemode.protocol.events import CheckProgram, Failed, ProgramAccepted, ProgramRefused, SendMessage
from codemode.protocol.invocation import Invocation
from codemode.protocol.messages import AnalyseProgram, PartiallyStrippedProgram, ProgramAnalysed, RunModule
from codemode.tools.catalog import Catalog

FACE = replace(SETTINGS.profile.guest, wrapper="module")
PROFILE = replace(SETTINGS.profile, name="modulesOfThisTest", guest=FACE)
MODULE = {"prefix": 0, "take": None, "imports": [], "dynamic": [], "namespace_calls": []}


class Given(Catalog[Any]):
    def build_invocation_data(self, facts: Any) -> Any:  # type: ignore[override]
        return {"module": facts["module"]}


def checker(source: str = "1", catalog: Any = None) -> ProgramChecker:
    return ProgramChecker(source, PROFILE, Given({}) if catalog is None else catalog, None, checks_tools=True)


@each_row(
    "facts",
    [
        None,
        {},
        {"calls": [], "modules": []},
        {"module": None},
        {"module": []},
        {"module": {}},
        {"module": {**MODULE, "imports": None}},
        {"module": {**MODULE, "dynamic": {}}},
        {"module": {**MODULE, "namespace_calls": "x"}},
        {"module": {**MODULE, "prefix": -1}},
        {"module": {**MODULE, "prefix": True}},
        {"module": {**MODULE, "prefix": 1.5}},
        {"module": {**MODULE, "take": 5}},
        {"module": {key: value for key, value in MODULE.items() if key != "take"}},
    ],
)
def test_a_module_of_which_nothing_certain_is_known_does_not_run(facts: Any):
    assert checker().check("1", facts) == ProgramRefused(is_unclear=True)


def test_what_imports_and_calls_say_is_for_the_tools_to_judge():
    facts: Any = {
        "module": MODULE,
        "modules": [{"kind": "import", "line": 1, "column": 1}],
        "calls": [{"name": "gone"}],
    }
    accepted = checker().check("1", facts)
    assert isinstance(accepted, ProgramAccepted)
    assert accepted.invocation_data_json is not None


def test_the_tools_have_the_last_word():
    refused = CodeModeError("not this one")

    class Refusing(Given):
        def find_program_error(self, facts: Any) -> Any:
            return refused

    answer = checker(catalog=Refusing({})).check("1", {"module": MODULE})  # type: ignore[arg-type]
    assert answer == ProgramRefused(error=refused)


@pytest.mark.parametrize("draft", [None, PartiallyStrippedProgram("1", 7, 9, is_ambiguous=False)])
def test_what_is_not_analysable_is_told_with_its_place(draft: PartiallyStrippedProgram | None):
    invocation = Invocation(replace(SETTINGS, profile=PROFILE))
    assert invocation.start("source", analysis_ms=50) == [SendMessage(AnalyseProgram("source", 50, 2))]
    assert invocation.receive(ProgramAnalysed("js", None, (), draft)) == [CheckProgram("js", None)]
    invocation.receive(ProgramRefused(is_unclear=True))
    assert isinstance(invocation.ending, Failed)
    error = invocation.ending.error
    assert type(error) is CodeModeIllegalAccessError
    place = {"line": 7, "column": 9} if draft else {"line": 1, "column": 1}
    assert error.details["violations"] == [{"kind": "NotAnalysable", "location": place}]


def test_a_module_starts_as_one():
    invocation = Invocation(replace(SETTINGS, profile=PROFILE))
    (effect,) = invocation.receive(events.ProgramAccepted("js", invocation_data_json="{}"))
    assert isinstance(effect, SendMessage)
    assert isinstance(effect.message, RunModule)
    assert (effect.message.js, effect.message.invocation_data_json) == ("js", "{}")
