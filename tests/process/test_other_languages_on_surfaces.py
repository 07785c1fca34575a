"""A text in another language is refused with what it is, also where the engine could run it."""

from __future__ import annotations

import json

import pytest
from module_servers import answer

from codemode import CodeModeError, create_code_call_tools, create_code_mode_tool, create_exec_wait_tools, failure_text

TEXTS = {
    "ls -la": "a shell command",
    "```bash\ncd /tmp && ls\n```": "a shell command",
    "Here:\n```python\nprint(1)\n```": "Python",
    '["nut", "bolt"]': "JSON",
    '```json\n{"product": "nut"}\n```': "JSON",
    "please get the stock of all products": "prose",
}


def test_every_surface_says_what_a_text_is():
    code_mode, code_call, pair = create_code_mode_tool([]), create_code_call_tools([]), create_exec_wait_tools([])
    for text, language in TEXTS.items():
        with pytest.raises(CodeModeError) as raised:
            code_mode.execute_sync({"js": text})
        assert f"This is {language}" in failure_text(raised.value, text), text
        assert f"This is {language}" in json.dumps(code_call.execute_sync({"script": text})["error"]), text
        said = json.dumps(answer(text)["diagnostics"])
        assert f"This is {language}" in said, text
        refused = pair.exec.execute_sync({"code": text})
        assert f"This is {language}" in refused["error"] or "shell command" in refused["error"], text


def test_programs_that_begin_like_commands_fail_as_programs():
    tool = create_code_mode_tool([])
    for js in ("source = missing;", "throw new ReferenceError('ls is not defined')", "return missing"):
        with pytest.raises(CodeModeError) as raised:
            tool.execute_sync({"js": js})
        assert "This is" not in failure_text(raised.value, js), js
