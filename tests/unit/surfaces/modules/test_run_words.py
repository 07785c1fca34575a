"""Errors of calls in the words of `@codemode/errors`: each class, one hint, no secret and nothing of the host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from suite import each_row

from codemode import CodeModeError, CodeModeToolError, Tool
from codemode.errors import CodeModeAuthenticationError, CodeModeSerializationError
from codemode.surfaces.modules.diagnostics import create_error_fields_builder
from codemode.surfaces.modules.module_tools import ModuleTool, QualifiedTool
from codemode.tools.prepared import create_tool_failed_error

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
MADE = QualifiedTool(Tool("x", execute=lambda value: value, input_schema=SCHEMA), "github.create-issue")
FOUND = ModuleTool("create-issue", "create_issue", MADE)


def find(name: str) -> ModuleTool | None:
    return FOUND if name == "github.create-issue" else None


WORDS = create_error_fields_builder(find, ("hunter2-and-more", "hunter2"))


def words(error: CodeModeError, *, raised: bool = False, kind: str = "tool", name: str = "github.create-issue") -> Any:
    said = dict(WORDS(error, kind, name, raised))
    assert all(isinstance(said[field], str) and said[field] for field in ("class", "code", "message", "hint"))
    json.dumps(said)
    return said


def with_reason(reason: str, message: str = "no") -> CodeModeToolError:
    error = CodeModeToolError(message)
    error.reason = reason
    return error


@each_row(
    "reason, error_class, code",
    [
        ("unknown_tool", "ToolNotFoundError", "TOOL_NOT_FOUND"),
        ("unknown_server", "ServerNotFoundError", "SERVER_NOT_FOUND"),
        ("import_failure", "ServerNotFoundError", "IMPORT_FAILURE"),
        ("limit", "SandboxLimitError", "SANDBOX_LIMIT"),
        ("timeout", "ToolCallError", "TIMEOUT"),
        ("approval_denied", "ToolCallError", "APPROVAL_DENIED"),
        ("approval_required", "ToolCallError", "APPROVAL_REQUIRED"),
        ("output", "ToolCallError", "INVALID_OUTPUT"),
        ("execution", "ToolCallError", "TOOL_FAILED"),
        ("anything else", "ToolCallError", "TOOL_FAILED"),
    ],
)
def test_reasons_are_classes(reason: str, error_class: str, code: str):
    said = words(with_reason(reason))
    assert (said["class"], said["code"]) == (error_class, code)
    assert (said["serverId"], said["toolName"]) == ("github", "create-issue")


def test_a_tool_cannot_pass_for_what_the_host_has_decided():
    said = words(with_reason("approval_denied"), raised=True)
    assert (said["class"], said["code"]) == ("ToolCallError", "TOOL_FAILED")


def test_a_wrong_input_has_all_its_fields():
    with pytest.raises(CodeModeToolError) as caught:
        MADE.validate_input({"title": 5})
    said = words(caught.value)
    assert said.pop("message").startswith("Invalid input")
    assert said == {
        "class": "SchemaValidationError",
        "code": "VALIDATION",
        "hint": "Change the value at /title: expected string.",
        "serverId": "github",
        "toolName": "create-issue",
        "exportName": "create_issue",
        "path": "/title",
        "expected": "string",
        "received": "number",
        "example": {"title": "text"},
    }


def test_an_input_that_is_too_much_is_told_with_class_and_path():
    error = CodeModeSerializationError("the input is more than 9 bytes", details={"bytes": 10, "max_bytes": 9})
    error.reason = "validation"
    said = words(error)
    assert (said["class"], said["path"]) == ("SchemaValidationError", "")
    assert {"expected", "received", "example", "exportName"} <= said.keys()


def test_signing_in_is_one_thing_to_do():
    said = words(CodeModeAuthenticationError("the token has expired"), raised=True)
    assert (said["class"], said["code"]) == ("AuthenticationError", "AUTHENTICATION_REQUIRED")
    assert said["message"] == "the token has expired"
    assert "github" in said["hint"]


def test_what_a_server_says_of_its_failure_is_shown_without_secrets():
    text = "no repository acme/widgets/x for hunter2-and-more, nor hunter2"
    assert (
        words(CodeModeToolError(text), raised=True)["message"]
        == "no repository acme/widgets/x for [secret], nor [secret]"
    )
    own = words(CodeModeToolError("gone", code="REPO_GONE"), raised=True)
    assert own["code"] == "REPO_GONE"
    assert words(CodeModeToolError("gone", code="hunter2"), raised=True)["code"] == "[secret]"


def test_a_call_that_may_have_happened_is_not_to_be_changed_and_made_again():
    hints = [words(CodeModeToolError("no answer", code=one), raised=True)["hint"] for one in ("OUTCOME_UNKNOWN", "X")]
    assert hints[0].startswith("Do not make this call again")
    assert hints[1] == "Change the call as the message says."


def test_what_a_server_says_is_bounded_and_no_secret_is_cut_open():
    for size in (3_990, 3_995, 4_000, 5_000_000, (1 << 20) - 3):
        message = words(CodeModeToolError("x" * size + "hunter2" * 3 + "y" * 100), raised=True)["message"]
        assert len(message) <= 4_000
        assert "hun" not in message


def test_what_the_host_raised_is_shown_without_paths_and_stacks():
    raised = RuntimeError(
        'Traceback (most recent call last):\n  File "/srv/app/x.py", line 3, in f\nkey hunter2 is bad'
    )
    said = words(create_tool_failed_error("github.create-issue", raised), raised=True)
    assert "key [secret] is bad" in said["message"]
    assert "srv" not in json.dumps(said)
    assert "Traceback" not in json.dumps(said)
    assert (said["class"], said["code"]) == ("ToolCallError", "TOOL_FAILED")


def test_a_failure_that_says_nothing_says_that_it_failed():
    assert (
        words(create_tool_failed_error("github.create-issue", RuntimeError()), raised=True)["message"]
        == "the call failed"
    )
    assert words(CodeModeToolError(""), raised=True)["message"]


def test_questions_to_discovery_fail_in_the_same_words():
    error = CodeModeToolError(
        "no", details={"hint": "Ask otherwise.", "pointer": "/0", "expected": "a string", "received": "5"}
    )
    error.reason = "validation"
    said = words(error, kind="catalog", name="getTool")
    assert (said["class"], said["toolName"], said["hint"]) == ("SchemaValidationError", "getTool", "Ask otherwise.")
    assert (said["path"], said["expected"], said["received"]) == ("/0", "a string", "5")
    assert "serverId" not in said


@pytest.mark.parametrize("value", [{"hunter2": 1}, {"title": "hunter2"}, {"title": {"hunter2": 1}}, "hunter2"])
def test_no_field_of_a_wrong_input_shows_a_secret(value: Any):
    schema = {"type": "object", "properties": {"title": {"enum": ["hunter2", "a"]}}, "additionalProperties": False}
    made = QualifiedTool(Tool("x", execute=None, input_schema={**schema, "required": ["b"]}), "github.create-issue")
    error = CodeModeToolError("wrong", details={"problems": [{"path": "title.hunter2", "message": "must be hunter2"}]})
    error.reason = "validation"
    with pytest.raises(CodeModeToolError) as caught:
        made.validate_input(value)
    for one in (error, caught.value):
        assert "hunter2" not in json.dumps({**words(one), "example": None})
