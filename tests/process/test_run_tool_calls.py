"""Calls of programs that are modules: inputs, unwrapped outputs, errors as classes, servers beside each other."""

from __future__ import annotations

from typing import Any

import pytest
from module_servers import HUB, IMAGE, RESULT, answer, only, result_of, run_tool, text_block

ERRORS = 'import * as errors from "@codemode/errors";\n'


def caught(call: str, tool: Any = None) -> Any:
    """Return what a program reads of the error of a call."""
    code = f"""{HUB}{ERRORS}
        try {{ await {call}; }} catch (error) {{
            const classes = Object.keys(errors).filter((name) => error instanceof errors[name]);
            {RESULT}{{ classes, fields: JSON.parse(JSON.stringify(error)), frozen: Object.isFrozen(error) }};
        }}"""
    return result_of(code, tool)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("hub.create_issue({ title: 'a' })", {"title": "a", "count": 3}),
        ("hub.list([1, 2])", [1, 2]),
        ("hub.echo('text')", "text"),
        ("hub.echo({ a: [null, 1.5] }, 'ignored')", {"a": [None, 1.5]}),
    ],
)
def test_inputs_are_validated_and_what_is_validated_is_sent(call: str, result: Any):
    assert result_of(f"{HUB}{RESULT}await {call};") == result


def test_a_tool_that_gives_nothing_gives_no_result():
    for call in ("hub.nothing()", "hub.nothing({})"):
        assert only("NO_RESULT", f"{HUB}{RESULT}await {call};")["severity"] == "info"


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("structured", {"a": 1}),
        ("zero", 0),
        ("text", '{"not": "parsed"}'),
        ("image", {"content": [text_block("a picture"), IMAGE]}),
        ("several", {"content": [text_block("one"), text_block("two")]}),
    ],
)
def test_outputs_are_unwrapped_by_four_rules_in_their_order(call: str, result: Any):
    assert result_of(f"{HUB}{RESULT}await hub.{call}();") == result


@pytest.mark.parametrize(
    ("call", "classes", "code", "message"),
    [
        ("hub.fails()", ["CodemodeError", "ToolCallError"], "TOOL_FAILED", "boom in [path] with [secret]"),
        ("hub.refuses()", ["CodemodeError", "ToolCallError"], "NO_REPO", "no repository [secret]/x"),
        ("hub.is_error()", ["CodemodeError", "ToolCallError"], "TOOL_FAILED", "it broke\nbadly"),
        (
            "hub.signed_out()",
            ["AuthenticationError", "CodemodeError", "ToolCallError"],
            "AUTHENTICATION_REQUIRED",
            "the token has expired",
        ),
        ("hub.gated(1)", ["CodemodeError", "ToolCallError"], "APPROVAL_REQUIRED", None),
    ],
)
def test_failures_of_calls_are_classes(call: str, classes: list[str], code: str, message: str | None):
    said = caught(call)
    assert (said["classes"], said["frozen"]) == (classes, True)
    fields = said["fields"]
    assert fields["code"] == code
    assert message in (None, fields["message"])
    assert {"name", "message", "hint", "serverId", "toolName"} <= fields.keys()
    assert fields["serverId"] == "git-hub"
    assert "on_approval_required" not in fields["message"]


def test_a_wrong_input_says_where_what_and_how():
    said = caught("hub.create_issue({ title: 'a', count: 'many' })")
    assert said["classes"] == ["CodemodeError", "SchemaValidationError"]
    fields = said["fields"]
    assert fields.pop("message")
    assert fields == {
        "name": "SchemaValidationError",
        "code": "VALIDATION",
        "hint": "Change the value at /count: expected integer.",
        "serverId": "git-hub",
        "toolName": "create-issue",
        "exportName": "create_issue",
        "path": "/count",
        "expected": "integer",
        "received": "string",
        "example": {"title": "own"},
    }


@pytest.mark.parametrize("argument", ["() => 1", "Symbol('x')", "(() => { const a = {}; a.a = a; return a; })()"])
def test_an_input_that_is_no_json_is_a_wrong_input(argument: str):
    said = caught(f"hub.echo({argument})")
    assert said["classes"] == ["CodemodeError", "SchemaValidationError"]
    assert {"serverId", "toolName", "exportName", "expected", "received", "hint"} <= said["fields"].keys()


def test_a_failing_call_leaves_the_others_of_all_servers_alone():
    code = f"""{HUB}import {{ send }} from "@codemode/servers/mail";
        const settled = await Promise.allSettled([hub.fails(), send({{ to: "a" }}), hub.echo(2), hub.is_error()]);
        {RESULT}settled.map((one) => one.status);"""
    assert result_of(code) == ["rejected", "fulfilled", "fulfilled", "rejected"]


def test_modules_export_functions_and_meta():
    code = f"""{HUB}import {{ then_ }} from "@codemode/servers/mail";
        {RESULT}[hub.__meta__.serverId, hub.__meta__.serverName, hub.__meta__.serverVersion,
            hub.__meta__.tools.find((one) => one.exportName === "create_issue"), await then_(), typeof hub.echo,
            Object.keys(hub).length];"""
    assert result_of(code) == [
        "git-hub",
        "Git Hub",
        "2.1",
        {"toolName": "create-issue", "exportName": "create_issue", "description": "Opens an issue."},
        "then",
        "function",
        16,
    ]


def test_discovery_answers_in_programs():
    code = f"""import * as d from "@codemode/discovery";
        {RESULT}[
            await d.listServers(),
            (await d.describeServer("Git Hub")).version,
            (await d.listTools("mail", {{ detail: "name" }})),
            Object.keys(await d.getTool("git-hub", "create-issue")),
            (await d.searchTools("issue", {{ limit: 1, detail: "name" }})).results,
        ];"""
    assert result_of(code) == [
        [
            {"serverId": "git-hub", "serverName": "Git Hub", "capabilities": ["tools"]},
            {"serverId": "mail", "serverName": "mail"},
        ],
        "2.1",
        [{"toolName": "send", "exportName": "send"}, {"toolName": "then", "exportName": "then_"}],
        ["toolName", "exportName", "description", "inputSchema", "declaration"],
        [{"serverId": "git-hub", "toolName": "create-issue", "exportName": "create_issue"}],
    ]


@pytest.mark.parametrize(
    ("call", "error_class"),
    [
        ('getTool("mail", "sned")', "ToolNotFoundError"),
        ('describeServer("male")', "ServerNotFoundError"),
        ("listTools(5)", "SchemaValidationError"),
        ('searchTools("x", { detail: "all" })', "SchemaValidationError"),
    ],
)
def test_questions_that_nobody_can_answer_are_classes_too(call: str, error_class: str):
    code = f"""import * as d from "@codemode/discovery"; {ERRORS}
        try {{ await d.{call}; }} catch (error) {{ {RESULT}error instanceof errors.{error_class} && error.hint; }}"""
    assert len(result_of(code)) > 10


@pytest.mark.parametrize(
    "expression",
    [
        '"@codemode/servers/" + "mail"',
        '{ toString() { return "@codemode/servers/mail"; } }',
        '["@codemode/servers/mail"]',
    ],
)
def test_an_import_of_any_expression(expression: str):
    code = f"const mail = await import({expression}); {RESULT}[await mail.send({{ to: 'b' }}), Object.keys(mail)];"
    assert result_of(code) == ["sent to b", ["__meta__", "send", "then_"]]


@pytest.mark.parametrize("expression", ['"@codemode/servers/nothing"', '"fs"', "5", "Symbol()", "`@codemode/${1}`"])
def test_an_import_of_what_there_is_not_is_a_rejection(expression: str):
    code = f"{ERRORS}{RESULT}await import({expression}).then(() => 'there', (error) => error instanceof Error);"
    assert result_of(code) is True


def test_approvals_by_callback():
    def decide(request: Any) -> Any:
        return {"approved": request.input == 1, "reason": "not two"}

    tool = run_tool(settings={"approval": {"on_approval_required": decide}})
    code = f"{HUB}{RESULT}[await hub.gated(1), await hub.gated(2).catch((error) => [error.name, error.code])];"
    assert result_of(code, tool) == [1, ["ToolCallError", "APPROVAL_DENIED"]]


def test_a_call_that_takes_too_long_can_be_caught():
    tool = run_tool(settings={"execution_policy": {"tool_timeout_ms": 50}})
    said = caught("hub.hangs()", tool)
    assert (said["classes"], said["fields"]["code"]) == (["CodemodeError", "ToolCallError"], "TIMEOUT")


def test_declarations_of_servers_that_a_request_names():
    tool = run_tool(max_description_characters=1_500)
    assert "declare module" not in tool.description
    response = answer(f"{RESULT}1", tool, requestedCapabilities=["Git Hub"])
    assert 'declare module "@codemode/servers/git-hub"' in response["declarations"]
    assert "servers/mail" not in response["declarations"]
    assert len(response["declarations"]) <= 20_000
    whole = run_tool()
    assert "declarations" not in answer(f"{RESULT}1", whole, requestedCapabilities=["mail"])
    assert "export function create_issue(" in whole.declarations("Git Hub")


def test_a_capability_that_is_not_to_be_had_is_said_at_once():
    response = answer(f"{RESULT}1", requestedCapabilities=["mial", "mail"])
    assert response["result"] == 1
    [said] = response["diagnostics"]
    assert (said["code"], said["severity"]) == ("CAPABILITY_UNAVAILABLE", "warning")
    assert "mail" in said["hint"]
