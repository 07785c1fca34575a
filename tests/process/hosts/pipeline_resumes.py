"""A host whose pipeline scrubs inputs. It pauses a program, or resumes one that another process paused.

pause FILE             write the interrupt to FILE
resume FILE ANSWER     print what came of it, and what the hook and the tool were given
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import codemode.types

logging.getLogger("codemode.continuations").addHandler(logging.NullHandler())
JS = "const first = await tools.look({token: 'secret 1'}); return [first, await tools.refund({token: 'secret 2'})]"


def main(action: str, file: str, answer: str = "{}") -> None:
    asked: list[Any] = []
    ran: list[Any] = []
    shown: list[Any] = []

    def before(call: codemode.types.PipelineCall) -> Any:
        asked.append(call.input)
        return {**call.input, "token": call.input["token"].replace("secret", "***")}

    def execute(value: Any) -> Any:
        ran.append(value)
        return value

    tools = [
        codemode.Tool("look", execute=execute),
        codemode.Tool("refund", execute=execute, needs_approval=True),
    ]
    options: dict[str, Any] = {
        "approval": {"mode": "interrupt"},
        "continuation": {"keys": "a key of this test"},
        "pipeline": {"before": before},
        "lifecycle": {"on_nested_tool_call": lambda event: shown.append([event.tool_name, event.input])},
    }
    path = Path(file)
    if action == "pause":
        interrupt = codemode.run_code_mode_sync(JS, tools, options=options)
        path.write_text(json.dumps(interrupt.to_dict()))
        return
    interrupt = json.loads(path.read_text())
    try:
        result = codemode.continue_interrupt_sync(interrupt, json.loads(answer), tools=tools, options=options)
    except codemode.CodeModeToolError as error:
        result = {"error": error.message}
    print(json.dumps({"result": result, "asked": asked, "ran": ran, "shown": shown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
