"""Media content in programs without handles: CodeCall and ``codemode.run``."""

from __future__ import annotations

from typing import Any

import pytest
from module_servers import RESULT

from codemode import MediaContent, ModuleServer, create_code_call_tools, create_modules_tool

DESCRIPTION = {"kind": "image", "mimeType": "image/png", "bytes": 4, "name": "p.png", "base64": "iVBORw=="}
IMPORT = 'import * as s from "@codemode/servers/s";\n'


def pic() -> MediaContent:
    return MediaContent(b"\x89PNG", "image/png", name="p.png")


def untyped_pics() -> Any:
    return {"pics": [pic()]}


def large_pic() -> MediaContent:
    return MediaContent(bytes(600_000), "image/png")


def describe(image: MediaContent) -> list[Any]:
    return [image.data.hex()[:8], len(image.data), image.mime_type, image.kind, image.name]


TOOLS = [pic, untyped_pics, large_pic, describe]


@pytest.fixture
def code_call(pool):
    return create_code_call_tools(TOOLS, {"direct_calls": {"enabled": True}}, pool=pool)


@pytest.fixture
def run_script(within, code_call):
    def run(script: str) -> dict[str, Any]:
        return within(code_call.call("codecall.execute", {"script": script}))

    return run


@pytest.fixture
def modules_tool(pool):
    return create_modules_tool([ModuleServer("s", TOOLS)], pool=pool)


@pytest.mark.parametrize(
    ("name", "value"), [("pic", DESCRIPTION), ("untyped_pics", {"pics": [DESCRIPTION]})], ids=["typed", "untyped"]
)
def test_programs_get_the_bytes_in_base64(run_script, modules_tool, within, name, value):
    assert run_script(f"return await callTool('{name}')") == {"status": "ok", "result": value}
    answer = within(modules_tool.execute({"code": f"{IMPORT}{RESULT}await s.{name}();"}))
    assert answer["result"] == value


def test_direct_calls_return_the_bytes_in_base64(code_call, within):
    answer = within(code_call.call("codecall.invoke", {"tool": "pic", "input": {}}))
    assert answer["status"] == "ok"
    assert answer["result"] == DESCRIPTION


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pic", ["89504e47", 4, "image/png", "image", "p.png"]),
        ("large_pic", ["00000000", 600_000, "image/png", "image", None]),
    ],
)
def test_tools_take_the_content_that_a_program_has(run_script, modules_tool, within, name, value):
    answer = run_script(f"return await callTool('describe', {{image: await callTool('{name}')}})")
    assert answer["result"] == value
    answer = within(modules_tool.execute({"code": f"{IMPORT}{RESULT}await s.describe({{image: await s.{name}()}});"}))
    assert answer["result"] == value


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("{mimeType: 'image/png'}", "an object with mimeType and base64"),
        ("{mimeType: 'image/png', base64: '#'}", "base64 is invalid"),
        ("{mimeType: 'png', base64: ''}", "must be one like 'image/png'"),
        ("'iVBORw=='", "an object with mimeType and base64"),
    ],
)
def test_invalid_content_is_refused_with_the_reason(run_script, image, message):
    answer = run_script(f"return await callTool('describe', {{image: {image}}})")
    assert answer["status"] == "tool_error"
    assert message in answer["error"]["message"]


def test_declarations_of_modules_have_base64_and_no_content_function(modules_tool):
    assert "base64: string;" in modules_tool.description
    assert "Promise<Content>" in modules_tool.description
    assert "content(handle" not in modules_tool.description
