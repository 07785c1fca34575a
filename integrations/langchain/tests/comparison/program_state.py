"""A program can store a value for the next program of the run

Ours by ``state``, theirs by a variable of the REPL.
"""

from __future__ import annotations

from langchain_desk import keeping_programs
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    return yes((await side.agent(*keeping_programs(side)).say()).result == "3")


if __name__ == "__main__":
    main(answer)
