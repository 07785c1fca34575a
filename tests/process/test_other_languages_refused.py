"""A program in another language is refused with the same hint on every surface."""

from __future__ import annotations

import asyncio

import pytest

from codemode import (
    CodeModeError,
    ModuleServer,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    failure_text,
    tool,
)

PYTHON = "import json\nresult = await tools.stock(product='nut')\nprint(result)"
PROSE = "I will look up how many nuts there are"
HINT = "This is {}, and a program is JavaScript. Write it as JavaScript and send the whole program."


@tool
def stock(product: str) -> int:
    return len(product)


@pytest.mark.parametrize(("text", "language"), [(PYTHON, "Python"), (PROSE, "prose")])
def test_every_surface_gives_the_same_hint(text: str, language: str) -> None:
    hint = HINT.format(language)
    with pytest.raises(CodeModeError) as caught:
        create_code_mode_tool([stock]).execute_sync({"js": text})
    assert hint in failure_text(caught.value, text)
    scripted = create_code_call_tools([stock]).execute_sync({"script": text})
    assert (scripted["status"], scripted["error"]["hint"]) == ("syntax_error", hint)
    pair = create_exec_wait_tools([stock])
    executed = pair.exec.execute_sync({"code": text})
    asyncio.run(pair.aclose())
    assert hint in executed["error"]
    module = create_modules_tool([ModuleServer("shop", [stock])]).execute_sync({"code": text})
    assert {one.get("hint") for one in module["diagnostics"]} == {hint}


def test_keyword_arguments_are_refused_before_anything_runs() -> None:
    with pytest.raises(
        CodeModeError, match=r"takes one object, not keyword arguments: write tools.stock\({ product: "
    ) as caught:
        create_code_mode_tool([stock]).execute_sync({"js": "return await tools.stock(product='nut');"})
    assert (caught.value.details["line"], caught.value.details["column"]) == (1, 14)
