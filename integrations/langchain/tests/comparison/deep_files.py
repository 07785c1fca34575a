"""A program can write and read the agent's files

langchain-quickjs with the tools of files in ``ptc``.
"""

from __future__ import annotations

from langchain_deep import deep_agent
from langchain_sides import QUICKJS, Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    write, read = ("writeFile", "readFile") if side.name == QUICKJS else ("write_file", "read_file")
    wrote = f"await tools.{write}({{ file_path: '/a.md', content: 'well' }});"
    js = f"{wrote} return await tools.{read}({{ file_path: '/a.md' }})"
    conversation = await deep_agent(side, js).say()
    return yes("well" in conversation.result and "/a.md" in conversation.output["files"])


if __name__ == "__main__":
    main(answer)
