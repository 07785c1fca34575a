"""A program can import a module provided by the host"""

from __future__ import annotations

from core_sides import AI_SDK, Side, main, run_node
from script_steps import yes

JS = 'const { value } = await import("./own.js"); return value;'


async def answer(side: Side) -> str:
    ran = await side.run(JS, "import own\nreturn own.value")
    if ran.value == "7":
        return "yes"
    if side.is_ours:
        return "tools of servers, with `codemode.run`" if await _imports_server() else "no"
    if side.name == AI_SDK:
        return "no; `run` by itself: " + yes((await run_node(JS, "run")).value == "7")
    return "no"


async def _imports_server() -> bool:
    from codemode import ModuleServer, create_modules_tool

    def seven() -> int:
        return 7

    js = 'import { seven } from "@codemode/servers/own"; globalThis.__codemode_result__ = await seven();'
    return (await create_modules_tool([ModuleServer("own", [seven])]).execute({"code": js}))["result"] == 7


if __name__ == "__main__":
    main(answer)
