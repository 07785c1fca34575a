"""A number, a boolean and a list returned by a tool keep their types in the program"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from typing_extensions import TypedDict


class Measured(TypedDict):
    count: int
    ok: bool
    of: list[str]


def measure() -> Measured:
    return {"count": 3, "ok": True, "of": ["a"]}


async def answer(side: Side) -> str:
    js = "const m = await tools.measure({}); return m.count === 3 && m.ok === true && Array.isArray(m.of)"
    python = "m = await measure()\nm['count'] == 3 and m['ok'] is True and isinstance(m['of'], list)"
    return yes((await side.run(js, python, [measure])).told[-1] is True)


if __name__ == "__main__":
    main(answer)
