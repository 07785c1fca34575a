"""What exec and wait take of a model, and what they say to what they do not take."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode.source.program_input import looks_like_shell
from codemode.surfaces.exec_wait.options import ExecWaitOptions
from codemode.surfaces.exec_wait.results import (
    InvalidInputError,
    create_run_not_found_error,
    parse_exec_input,
    parse_wait_input,
)

BOTH = ExecWaitOptions()


@pytest.mark.parametrize("names", [["code"], ["command"], ["code", "command"]])
def test_code_and_command_are_two_names_of_one_field(names: list[str]):
    given = dict.fromkeys(names, "return 1")
    assert (parse_exec_input(given, BOTH).code, parse_exec_input(given, BOTH).language) == ("return 1", "javascript")


@each_row(
    "given, code",
    [
        ({}, "invalid_input"),
        ({"code": ""}, "invalid_input"),
        ({"code": " \n"}, "invalid_input"),
        ({"code": 5}, "invalid_input"),
        ({"code": "1", "command": "2"}, "invalid_input"),
        ({"code": "1", "other": 2}, "invalid_input"),
        ("return 1", "invalid_input"),
        (None, "invalid_input"),
        ({"code": "1", "language": "python"}, "unsupported_language"),
        ({"code": "1", "language": 5}, "unsupported_language"),
        ({"code": "1", "language": "TypeScript"}, "unsupported_language"),
    ],
)
def test_an_input_that_means_nothing_is_refused(given: Any, code: str):
    with pytest.raises(InvalidInputError) as caught:
        parse_exec_input(given, BOTH)
    assert caught.value.code == code


def test_a_language_that_is_not_enabled_is_refused_and_the_other_is_the_default():
    only = ExecWaitOptions.of({"languages": ["typescript"]})
    assert parse_exec_input({"code": "1"}, only).language == "typescript"
    with pytest.raises(InvalidInputError, match="not enabled") as caught:
        parse_exec_input({"code": "1", "language": "javascript"}, only)
    assert caught.value.code == "unsupported_language"


@each_row("given", [{}, {"runId": ""}, {"runId": 5}, {"runId": "a", "run_id": "b"}, {"id": "a"}, "a"])
def test_wait_takes_a_run_id(given: Any):
    with pytest.raises(InvalidInputError):
        parse_wait_input(given)
    assert parse_wait_input({"runId": "a"}) == parse_wait_input({"run_id": "a"}) == "a"


@each_row("run_id", ["12345", "job-1", "pid 77", "session_3", "5f0c7a3e-1111-4222-8333-123456789abc"])
def test_the_id_of_another_tools_job_is_told_so(run_id: str):
    assert "another tool's job or process" in create_run_not_found_error(run_id).message


@pytest.mark.parametrize("run_id", ["run_" + "0" * 32, "run_1", "something"])
def test_any_other_unknown_id_is_not(run_id: str):
    assert "no waiting run" in create_run_not_found_error(run_id).message


@each_row("code", ["ls", "ls -la /tmp", "cat a | grep b", "sudo rm -rf /", "$ git status"])
def test_commands_of_a_shell_are_known(code: str):
    assert looks_like_shell(code)


@each_row("code", ["return 1", "const ls = 1", "lsof()", "grep(1)", "findAll()", "git.status()"])
def test_programs_are_not_taken_for_them(code: str):
    assert not looks_like_shell(code)
