"""A read from `this` or a literal that fails is reported at its own place, on every surface."""

from __future__ import annotations

from typing import Any

import pytest

from codemode import (
    CodeModeError,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    failure_text,
)

TOOLS = [Tool("echo", execute=lambda value: value)]
CART = """\
class Cart {
  constructor() { this.name = 'cart' }
  total() {
    const rate: number = 2;
    return rate * this.items.length;
  }
}
"""
PLACES = {
    "const a = 1;\n\nnull.x": (3, 1),
    CART + "new Cart().total()": (5, 19),
    "const a: number = 1;\n'\U0001f600'; const b = [].a.b": (2, 17),
}


@pytest.mark.parametrize("js", PLACES)
def test_code_mode_reports_the_place_of_the_read_with_its_line(js: str):
    with pytest.raises(CodeModeError) as caught:
        create_code_mode_tool(TOOLS).execute_sync({"js": js})
    details, (line, column) = caught.value.details, PLACES[js]
    assert (details["line"], details["column"]) == (line, column)
    assert js.split("\n")[line - 1].strip() in failure_text(caught.value, js)


def test_the_place_is_found_behind_a_pause_for_a_call():
    js = "const got = await tools.echo({ n: 1 });\n\nthis?.x;\nreturn [got].a.b"
    with pytest.raises(CodeModeError) as caught:
        create_code_mode_tool(TOOLS).execute_sync({"js": js})
    assert caught.value.details["line"] == 4


def test_the_other_surfaces_report_it_too():
    js = CART + "await 1;\nnew Cart().total();"
    code = 'import { echo } from "@codemode/servers/shop"; ' + js
    run: Any = create_modules_tool([ModuleServer("shop", TOOLS)])
    (diagnostic,) = run.execute_sync({"code": code})["diagnostics"]
    assert diagnostic["path"] == "5:19"
    failed = create_code_call_tools(TOOLS).execute_sync({"script": CART + "return new Cart().total()"})
    assert "5:19" in failed["error"]["stack"]
    answer = create_exec_wait_tools(TOOLS).exec.execute_sync({"code": js, "language": "typescript"})
    assert "line 5, column 19" in answer["error"]
