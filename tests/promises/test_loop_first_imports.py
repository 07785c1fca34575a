"""What only some options ask for is imported in a thread, at the first run that asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, sys, threading
from codemode import CodeModeError, Tool, run_code_mode

imported = []


class Noting:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            imported.append(name)


async def main():
    tools = [Tool("ask", execute=lambda _: 1, needs_approval=True)]
    sys.meta_path.insert(0, Noting())
    try:
        await run_code_mode(JS, tools, options={"approval": {"mode": "interrupt"}, **OPTIONS})
    except CodeModeError as error:
        assert "fetch" in str(error), error


asyncio.run(main())
assert not [name for name in imported if name.partition(".")[0] in HEAVY and name != "httpx"], imported
assert imported.count("httpx") <= 1, imported  # which is looked for, and not imported
"""
FETCH = {"fetch_policy": {"allowed_origins": ["https://127.0.0.1:1"], "refuse_private_addresses": False}}
CASES = {
    "seal": ("await tools.ask({})", {"continuation": {"keys": ["key"], "seal": True, "compress": True}}),
    "telemetry": ("return 1", {"telemetry": {"is_enabled": True}}),
    "fetch": ("await fetch('https://127.0.0.1:1/')", FETCH),
}
HEAVY = ("cryptography", "opentelemetry", "httpx", "httpcore", "anyio", "ssl")


@pytest.mark.parametrize(("js", "options"), CASES.values(), ids=CASES)
def test_loop_the_first_run_with_an_option_imports_nothing_on_the_loop(js, options):
    given = f"JS, OPTIONS, HEAVY = {js!r}, {options!r}, {HEAVY!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", given + SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
