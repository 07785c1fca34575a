"""Host resources that a program can reach: files, network, processes, environment

Everything that is tried is a program of its own; reached is what gives something.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import ends, in_environment

MARK = "COMPARISON_SECRET"
TRIED = {
    "files": [
        ("return require('fs').readFileSync('/etc/hostname')", "open('/etc/hostname').read()"),
        ("return (await import('fs')).readFileSync('/etc/hostname')", "import pathlib\npathlib.Path('/etc').exists()"),
        ("return std.open('/etc/hostname', 'r').readAsString()", "import os\nstr(os.listdir('/'))"),
    ],
    "network": [
        ("return (await fetch('http://127.0.0.1:9/')).status", "import socket\nstr(socket.socket())"),
        ("return new XMLHttpRequest()", "import urllib.request\nstr(urllib.request)"),
    ],
    "processes": [
        ("return require('child_process').execSync('id')", "import subprocess\nstr(subprocess)"),
        ("return os.exec(['id'])", "import os\nstr(os.system('id'))"),
    ],
    "environment": [
        (f"return process.env.{MARK}", f"import os\nos.getenv('{MARK}')"),
        (f"return std.getenv('{MARK}')", f"import os\nos.environ['{MARK}']"),
    ],
}


async def answer(side: Side) -> str:
    reached: list[str] = []
    with in_environment(MARK):
        for what, programs in TRIED.items():
            for js, python in programs:
                # A value that went back is a tool's input here: what fails calls nothing.
                got: list[str] = []

                def told(value: str, got: list[str] = got) -> str:
                    got.append(value)
                    return value

                lines = python.split("\n")
                last = f"value = {lines[-1]}\nif value:\n    await told(value=str(value))"
                tries = "\n".join([*lines[:-1], last])
                asks = f"const it = await (async () => {{ {js} }})(); if (it) await tools.told({{ value: `${{it}}` }})"
                await ends(side.run(asks, tries, [told]))
                if got and what not in reached:
                    reached.append(what)
    return ", ".join(reached) or "nothing"


if __name__ == "__main__":
    main(answer)
