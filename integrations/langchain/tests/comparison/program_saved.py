"""A program can be saved as a versioned function for other threads

langchain-quickjs keeps variables of a thread, and has no place for programs of others.
"""

from __future__ import annotations

from langchain_sides import Side, main


async def answer(side: Side) -> str:
    if not side.is_ours:
        first = side.program("globalThis.twice = (x) => 2 * x; 'ok'", "one", is_script=True)
        await side.agent(first).say()
        later = side.agent(side.program("return twice(21)", "two"))
        return "yes" if (await later.say()).result == "42" else "no"
    from codemode_langchain import CodeModeMiddleware

    from codemode import ProgramLibrary
    from codemode.stores import MemoryInterruptStore

    library = ProgramLibrary(MemoryInterruptStore())
    await library.save("twice", "return 2 * input.x")
    program = side.program("return await saved.twice({ x: 21 })", "two")
    has_worked = (await side.agent(program, middleware=CodeModeMiddleware(library=library)).say()).result == "42"
    return "yes, with `library`" if has_worked and len(await library.history("twice")) == 1 else "no"


if __name__ == "__main__":
    main(answer)
