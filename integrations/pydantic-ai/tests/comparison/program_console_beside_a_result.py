"""The model reads the console output of a successful program

Ours with the option ``model_output.include_console``, where it does not by default.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes

PROGRAMS = "console.log('by the way'); return 41 + 1", "print('by the way')\n41 + 1"


async def answer(side: Side) -> str:
    if (by_default := await is_read(side, None)) or not side.is_ours:
        return yes(by_default)
    capability = side.capability(options={"model_output": {"include_console": True}})
    return f"{yes(await is_read(side, capability))}, with `include_console`"


async def is_read(side: Side, capability: object) -> bool:
    said = (await side.run(*PROGRAMS, capability=capability)).said
    return "42" in said and "by the way" in said


if __name__ == "__main__":
    main(answer)
