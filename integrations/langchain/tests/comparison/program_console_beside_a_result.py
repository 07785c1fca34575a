"""The model reads the console output of a successful program

Ours with the option ``model_output.include_console``, where it does not by default.
"""

from __future__ import annotations

from typing import Any

from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    if (by_default := await is_read(side, {})) or not side.is_ours:
        return yes(by_default)
    options = {"options": {"model_output": {"include_console": True}}}
    return f"{yes(await is_read(side, options))}, with `include_console`"


async def is_read(side: Side, options: dict[str, Any]) -> bool:
    said = (await side.run("console.log('by the way'); return 41 + 1", options=options)).said
    return "42" in said and "by the way" in said


if __name__ == "__main__":
    main(answer)
