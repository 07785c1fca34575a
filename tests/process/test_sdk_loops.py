"""The plain loops of docs/loops.md, with the real SDKs against a scripted model on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpServer
from sdk_standins import ScriptedModel, serve
from suite import full_only

PAGE = (Path(__file__).parents[2] / "docs" / "loops.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WORKS = "const { length } = 'ab'; return { bolts: await tools.stock({ product: 'bolt' }), length }"
FAILS = "const n = await tools.stock({ product: 'nut' });\nreturn n.missing.more;"


def block_of(sdk: str) -> str:
    shown = {"openai": "client.chat.", "responses": "client.responses.", "anthropic": "client.messages."}[sdk]
    (block,) = (block for block in BLOCKS if shown in block)
    return block


def converse(sdk: str, server: HttpServer, *programs: str, block: str = "") -> list[dict[str, Any]]:
    """Run the page's loop, or a block like it, and return what the service was asked."""
    model = ScriptedModel(programs)
    command = [sys.executable, "-W", "error", "-c", block or block_of(sdk)]
    environment = {**os.environ, **serve(server, model)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.strip() == model.closing
    assert len(model.asked) == len(programs) + 1
    return model.asked


def tool_result(sdk: str, asked: dict[str, Any]) -> tuple[str, str]:
    """The last tool result in a request: the id of the call that it answers, and its content."""
    last = asked["messages"][-1]
    if sdk == "openai":
        assert last["role"] == "tool"
        return last["tool_call_id"], last["content"]
    (block,) = last["content"]
    return block["tool_use_id"], block["content"]


@pytest.mark.parametrize("sdk", ["openai", *full_only("anthropic")])
def test_the_model_is_shown_the_tool_and_its_result(server, sdk):
    first, second = converse(sdk, server, WORKS)
    (tool,) = first["tools"]
    shown = tool["function"] if sdk == "openai" else tool
    schema = shown["parameters" if sdk == "openai" else "input_schema"]
    assert (shown["name"], schema["required"]) == ("codeMode", ["js"])
    assert "stock(input: {" in shown["description"]
    assert tool_result(sdk, second) == ("call_1", '{"bolts": 120, "length": 2}')


@pytest.mark.full
@pytest.mark.parametrize("sdk", ["openai", *full_only("anthropic")])
def test_a_failed_program_is_explained_and_the_next_one_works(server, sdk):
    _, second, third = converse(sdk, server, FAILS, "return 'fine'")
    call_id, text = tool_result(sdk, second)
    assert call_id == "call_1"
    assert text.startswith("TypeError: ")
    assert "at line 2, column" in text
    assert "return n.missing.more;" in text
    assert "Already done, do not repeat: stock(" in text
    if sdk == "anthropic":
        assert second["messages"][-1]["content"][0]["is_error"] is True
    assert tool_result(sdk, third) == ("call_2", "fine")


CONTINUED = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
REFUND = "return await tools.refund({ order: 'a' })"
GATED = """
from codemode import tool

@tool(needs_approval=True)
def refund(order: str) -> str:
    with open("refunds.txt", "a") as file:
        print(order, file=file)
    return "refunded " + order
"""


@pytest.mark.full
def test_a_pause_is_continued_in_other_processes_and_once(server, tmp_path):
    agent = GATED + block_of("openai").replace(
        "create_code_mode_tool([stock])", 'create_code_mode_tool([refund], store="sqlite:///pauses.db")'
    )
    (tmp_path / "agent.py").write_text(agent, encoding="utf-8")
    model = ScriptedModel([REFUND])
    environment = {**os.environ, **serve(server, model), "CODEMODE_SIGNING_KEY": "9c1f0a7e93d24b68a1e7c05d9b3f8462"}

    def run(*command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
        )
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    assert run("agent.py") == (1, "", "a call waits for approval")
    assert not (tmp_path / "refunds.txt").exists()
    for _ in range(2):
        assert run("-c", CONTINUED) == (0, model.closing, "")
    assert (tmp_path / "refunds.txt").read_text() == "a\n"
    assert model.asked[-1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "refunded a"}
    assert run("-c", CONTINUED.replace("True}", "False}"))[:2] == (0, model.closing)
    assert "other answers" in model.asked[-1]["messages"][-1]["content"]


@pytest.mark.full
def test_a_custom_tool_takes_raw_text(server):
    first, second, third = converse("responses", server, 'return "a\\n\\"b\\"";', FAILS)
    (tool,) = first["tools"]
    assert (tool["type"], tool["name"], tool["format"]) == ("custom", "codeMode", {"type": "text"})
    assert "stock(input: {" in tool["description"]
    assert second["input"][-1] == {"type": "custom_tool_call_output", "call_id": "call_1", "output": 'a\n"b"'}
    assert "TypeError" in third["input"][-1]["output"]


PHOTO = """
from codemode import MediaContent

def photo(product: str) -> MediaContent:
    return MediaContent(b"\\x89PNG", "image/png", name=f"{product}.png")
"""


@pytest.mark.full
@pytest.mark.parametrize("sdk", ["openai", *full_only("anthropic")])
def test_images_are_handed_on_as_images_and_never_as_text(server, sdk):
    block = PHOTO + block_of(sdk).replace("create_code_mode_tool([stock])", "create_code_mode_tool([stock, photo])")
    js = "return { front: await tools.photo({ product: 'bolt' }), bolts: await tools.stock({ product: 'bolt' }) }"
    _, second = converse(sdk, server, js, block=block)
    if sdk == "openai":
        told, shown = second["messages"][-2:]
        text, url = told["content"], shown["content"][0]["image_url"]["url"]
        assert (told["role"], shown["role"]) == ("tool", "user")
        assert url == "data:image/png;base64,iVBORw=="
    else:
        (result,) = second["messages"][-1]["content"]
        text, source = result["content"][0]["text"], result["content"][1]["source"]
        assert source == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert '"bolt.png"' in text
    assert '"bolts":120' in text
    assert "iVBORw" not in text
