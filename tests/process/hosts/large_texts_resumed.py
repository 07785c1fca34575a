"""A host that pauses a script with large texts in it, or goes on with one. Arguments: pause or resume, and a file.

pause FILE    write the interrupt to FILE
resume FILE   print what came of it: the answer, and what the tool was given
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from large_texts import LargeTexts

JS = """const { text, other } = await callTool('read'); const random = Math.random();
const stored = await callTool('docs.store', { text, more: [other, random] });
return [stored, text, other, text.length, random === (await callTool('take', { text, random })).taken, typeof text]"""


def main(action: str, file: str) -> None:
    texts = LargeTexts()
    settings = {"approval": {"mode": "interrupt"}, "continuation": {"keys": ["a key that is shared"], "guard": None}}
    # Another host's own sizes: the script goes on under those with which it began.
    sidecar = {} if action == "pause" else {"extraction_threshold": 50_000, "allow_composites": True}
    code_call = texts.code_call(sidecar, store={"needs_approval": True}, settings=settings)
    if action == "pause":
        interrupt = code_call.execute_sync({"script": JS})
        Path(file).write_text(json.dumps(interrupt.to_dict()))
        return
    interrupt = json.loads(Path(file).read_text())
    print(json.dumps([code_call.resume_sync(interrupt, {"approved": True}), texts.taken]))


if __name__ == "__main__":
    main(*sys.argv[1:])
