"""codeMode as a custom tool of the SDK: programs come as raw text, and nothing is asked of a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import CustomTool, Runner, function_tool
from codemode_openai_agents import code_mode_custom_tool
from scripted_model import QUIET, Script, agent, outputs

from codemode import MediaContent


@function_tool
def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"bolt": 120, "nut": 7}[product]


def answered(tool: CustomTool, program: str) -> Any:
    """Run an agent whose model writes one program, and return the item that the model was answered with."""
    script = Script([("custom:codeMode", program)], "done")
    result = asyncio.run(Runner.run(agent(script, tool), "go", run_config=QUIET))
    assert result.final_output == "done"
    (output,) = outputs(result)
    assert output.raw_item["type"] == "custom_tool_call_output"
    return output.raw_item["output"]


def test_the_model_is_told_that_the_input_is_raw_text() -> None:
    config: dict[str, Any] = {**code_mode_custom_tool([stock]).tool_config}
    assert (config["type"], config["name"], config["format"]) == ("custom", "codeMode", {"type": "text"})
    assert "stock(input: {" in config["description"]
    assert "plain text: no JSON around it" in config["description"]


def test_a_program_with_quotes_and_lines_runs_as_it_is() -> None:
    program = 'const said = "a \\"b\\"";\nreturn { said, nuts: await tools.stock({ product: "nut" }) };'
    assert answered(code_mode_custom_tool([stock]), program) == '{"said": "a \\"b\\"", "nuts": 7}'


def test_a_program_that_fails_says_why() -> None:
    output = answered(code_mode_custom_tool([stock]), "const a = 1;\nreturn a.b.c;")
    assert "TypeError" in output
    assert "return a.b.c;" in output


def test_an_image_is_described_in_the_text() -> None:
    def photo() -> MediaContent:
        """Take a photo."""
        return MediaContent(b"\x89PNG", "image/png", name="bolt.png")

    output = answered(code_mode_custom_tool([photo]), "return await tools.photo()")
    assert "bolt.png" in output
    assert "iVBORw" not in output


def test_a_tool_that_may_ask_a_person_is_refused() -> None:
    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        """Refund an order."""
        return order

    with pytest.raises(ValueError, match=r"calls may need approval: refund\. Use code_mode"):
        code_mode_custom_tool([stock, refund])
