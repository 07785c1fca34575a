"""Tenants: invocations side by side never see one another's tools, outputs, console or traces.

``python -m tests.soak.tenants [invocations]`` prints the figures.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support.leftovers import nothing_left

from codemode import CallContext, CodeModeError, Tool, WorkerPool, run_code_mode

AT_ONCE, WORKERS = 16, 4
WAIT_SECONDS = 600.0
current_tenant: contextvars.ContextVar[str] = contextvars.ContextVar("current_tenant")

# One text for all of them: what the host remembers of a program is shared.
PROGRAM = """
console.log(await tools.whoami({}));
const names = await tools.$search("only");
const seen = [globalThis.mark ?? null, Object.prototype.mark ?? null];
globalThis.mark = await tools.secret({ at: Date.now() });
const answers = await Promise.all([tools.whoami({}), tools.secret({ at: 1 }), tools.secret({ at: 2 })]);
let missing = [];
for (const name of ["onlyA", "onlyB", "onlyC"]) {
  try { missing.push(await tools[name]({})) } catch (error) { missing.push(error.name) }
}
console.warn(globalThis.mark);
if (answers[1].length % 2 === FAILS) throw new Error(answers[1]);
return { names, seen, answers, missing };
"""


@dataclass
class Tenant:
    """One invocation of one tenant, with a secret that nobody else may ever see, and all that came out of it."""

    name: str
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    heard: list[Any] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        """Tools of the same names for every tenant, and one of its own."""

        async def whoami(_input: Any, context: Any) -> str:
            await asyncio.sleep(0)
            assert context.context is self
            return f"{current_tenant.get()} {self.secret}"

        def secret(_input: Any, context: Any) -> str:  # in a thread
            assert current_tenant.get() == f"{self.name}/{self.secret}"
            return self.secret

        return [
            Tool("whoami", execute=whoami),
            Tool("secret", execute=secret),
            Tool(f"only{self.name}", execute=lambda _input, _context: f"only {self.secret}", description="only mine"),
        ]

    async def run(self, pool: WorkerPool, *, fails: bool) -> None:
        """Run the program. Raises AssertionError for anything that it should not have seen, or was not told."""
        current_tenant.set(f"{self.name}/{self.secret}")
        lifecycle = dict.fromkeys(("on_console", "on_nested_tool_call", "on_nested_tool_result"), self.heard.append)
        options = {"lifecycle": {**lifecycle, "on_trace": self.heard.append}}
        program = PROGRAM.replace("FAILS", "0" if fails else "1")
        try:
            value = await run_code_mode(
                program, self.tools(), options=options, call=CallContext(context=self), pool=pool
            )
        except CodeModeError as error:
            assert fails, error
            assert error.message == self.secret
            value = error.details
        else:
            assert not fails
            self._check_value(value)
        self.heard.append({"value": value})

    def _check_value(self, value: Any) -> None:
        whoami = f"{self.name}/{self.secret} {self.secret}"
        assert value["seen"] == [None, None]
        assert value["answers"] == [whoami, self.secret, self.secret]
        mine = {f"only{name}": "CodeModeToolError" for name in "ABC"} | {f"only{self.name}": f"only {self.secret}"}
        assert value["missing"] == list(mine.values()), value["missing"]
        listed = json.dumps(value["names"])
        assert [f"only{name}" in listed for name in "ABC"] == [name == self.name for name in "ABC"], listed

    def text(self) -> str:
        """Everything that was heard, as text."""
        plain = [item if isinstance(item, dict) else item.to_dict() for item in self.heard]
        return json.dumps(plain, default=str)


async def side_by_side(count: int, start_method: str = "fork") -> list[Tenant]:
    """Run many invocations of three tenants at the same time on one pool, and return them."""
    pool = WorkerPool({"max_workers": WORKERS, "on_saturation": "wait", "start_method": start_method})
    tenants = [Tenant("ABC"[number % 3]) for number in range(count)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await tenants[number].run(pool, fails=number % 5 == 4)

    try:
        # Each in a task of its own, and so in a context of its own.
        await asyncio.wait_for(
            asyncio.gather(*(asyncio.create_task(one(number)) for number in range(count))), WAIT_SECONDS
        )
        assert pool.active == 0
    finally:
        pool.close()
    return tenants


def check_apart(tenants: list[Tenant]) -> None:
    """Raise AssertionError where something of one invocation turned up in what another gave out."""
    all_secrets = {tenant.secret for tenant in tenants}
    assert len(all_secrets) == len(tenants)
    for tenant in tenants:
        text = tenant.text()
        # Console, calls, results, trace and value: its own secret is in all of them.
        assert text.count(tenant.secret) >= 8, text
        assert {secret for secret in all_secrets if secret in text} == {tenant.secret}
        assert len({item["invocationId"] for item in map(_plain, tenant.heard) if "invocationId" in item}) == 1


def _plain(item: Any) -> dict[str, Any]:
    return item if isinstance(item, dict) else item.to_dict()


def main() -> None:
    """Run it long, and print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    started = time.monotonic()
    with nothing_left():
        tenants = asyncio.run(side_by_side(count))
    check_apart(tenants)
    seconds = time.monotonic() - started
    print(f"tenants: {count} invocations of 3 tenants, {AT_ONCE} at once on {WORKERS} workers, {seconds:.0f} s")
    print(f"  looked through     {sum(len(tenant.heard) for tenant in tenants)} events, traces and values")
    print("  of another tenant  nothing")


if __name__ == "__main__":
    main()
