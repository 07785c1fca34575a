"""A program can access a folder of the host

The harness with ``mount``; ours has no such option, a tool has to read.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai_sides import Side, main
from script_steps import yes


def mounted(side: Side, folder: str) -> Any:
    if side.is_ours:
        return side.capability(options={"mount": folder})
    from pydantic_monty import MountDir

    return side.capability(mount=MountDir(virtual_path="/work", host_path=folder, mode="read-only"))


async def answer(side: Side) -> str:
    with TemporaryDirectory() as folder:
        (Path(folder) / "data.txt").write_text("of the host")
        try:
            capability = mounted(side, folder)
        except ValueError:
            return "no"
        python = "import pathlib\npathlib.Path('/work/data.txt').read_text()"
        conversation = await side.run("return 'nothing to read with'", python, capability=capability)
        return yes(conversation.told[-1] == "of the host") + ", with `mount`"


if __name__ == "__main__":
    main(answer)
