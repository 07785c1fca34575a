"""Host resources that a program can reach: files, network, processes, environment

Everything that is tried is a program of its own; reached is what gives something.
"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import ends, in_environment

MARK = "COMPARISON_SECRET"
TRIED = {
    "files": [
        "return require('fs').readFileSync('/etc/hostname')",
        "return (await import('fs')).readFileSync('/etc/hostname')",
        "return std.open('/etc/hostname', 'r').readAsString()",
    ],
    "network": ["return (await fetch('http://127.0.0.1:9/')).status", "return new XMLHttpRequest()"],
    "processes": ["return require('child_process').execSync('id')", "return os.exec(['id'])"],
    "environment": [f"return process.env.{MARK}", f"return std.getenv('{MARK}')"],
}


async def answer(side: Side) -> str:
    reached, got = list[str](), list[str]()

    @tool
    def told(value: str) -> str:
        """Take what was reached: what fails calls nothing."""
        got.append(value)
        return value

    with in_environment(MARK):
        for what, programs in TRIED.items():
            for js in programs:
                got.clear()
                asks = f"const it = await (async () => {{ {js} }})(); if (it) await tools.told({{ value: `${{it}}` }})"
                await ends(side.run(asks, [told]))
                if got and what not in reached:
                    reached.append(what)
    return ", ".join(reached) or "nothing"


if __name__ == "__main__":
    main(answer)
