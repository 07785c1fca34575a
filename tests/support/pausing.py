"""Pauses in tests: the way through JSON, tools that note each execution."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from calls import with_call
from invocation_settings import NOW_MS, SETTINGS
from waiting import within

from codemode import ContinuationOptions, Interrupt, Tool, continue_interrupt, request_interrupt, run_code_mode
from codemode.continuations.sealing import encode_and_sign_continuation
from codemode.host.clock import now_ms as current_ms
from codemode.interrupts.interrupt import APPROVAL_KIND, convert_to_pending_requests
from codemode.protocol.continuation import Continuation, continuation_to_texts
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting

PAUSING: dict[str, Any] = {"approval": {"mode": "interrupt"}}
OK, NO = {"approved": True}, {"approved": False}


def through_json(interrupt: Any) -> Interrupt:
    """The interrupt as it comes back from a message log."""
    assert isinstance(interrupt, Interrupt), interrupt
    return Interrupt.from_dict(json.loads(json.dumps(interrupt.to_dict())))


def start(js: str, tools: Any, options: Any = PAUSING, **settings: Any) -> Any:
    """Run a program to its end or its pause."""
    return within(run_code_mode(js, tools, options=options, **with_call(settings)))


def go_on(interrupt: Any, tools: Any, *answer: Any, options: Any = PAUSING, **settings: Any) -> Any:
    """Answer an interrupt that has been through JSON."""
    return within(
        continue_interrupt(through_json(interrupt), *answer, tools=tools, options=options, **with_call(settings))
    )


class Spy:
    """Makes tools that note their executions in ``ran`` as (name, input)."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    def tool(self, name: str, action: Callable[..., Any] | None = None, **settings: Any) -> Tool:
        async def execute(value: Any, context: Any) -> Any:
            self.ran.append((name, value))
            if action is None:
                return {"done": name}
            result = action(value, context)
            return await result if asyncio.iscoroutine(result) else result

        return Tool(name, execute=execute, **settings)

    def guarded(self, name: str = "refund", **settings: Any) -> Tool:
        """A tool that needs approval."""
        return self.tool(name, needs_approval=True, **settings)

    def asking(self, name: str = "login", kind: str = "oauth") -> Tool:
        """A tool that pauses until it is answered, and returns the answer."""

        def ask(_value: Any, context: Any) -> Any:
            if context.interrupt is None:
                request_interrupt({"kind": kind, "url": "https://example.com"})
            return context.interrupt.resolution

        return self.tool(name, ask)


# --- pauses without a worker ---

APPROVAL_JSON = f'{{"kind":"{APPROVAL_KIND}"}}'


def waiting_entry(number: int, payload_json: str = APPROVAL_JSON, **changes: Any) -> LedgerEntry:
    """A tool call that waits; the tool's name is that of its position."""
    waiting = Waiting(f"outer:tool-{number}:interrupt-5a17-1", payload_json, '{"amount":900.0}', 1)
    given = {"tool_call_id": f"outer:tool-{number}", "outcome": waiting, "now_ms": NOW_MS, **changes}
    return LedgerEntry(number, "tool", f"tool{number}", '{"amount":900}', **given)


def done_entry(number: int, outcome: Any = None, **changes: Any) -> LedgerEntry:
    """A tool call that has ended."""
    return waiting_entry(number, **{"outcome": outcome or Fulfilled('{"ok":true}'), **changes})


def packed(body: dict[str, Any], options: Any, now_ms: int) -> dict[str, Any]:
    """A signed continuation around a body."""
    return encode_and_sign_continuation(continuation_to_texts(body), ContinuationOptions.of(options), now_ms)


def made_interrupt(
    *entries: LedgerEntry, options: Any = None, now_ms: int | None = None, change: Any = lambda body: body
) -> Interrupt:
    """An interrupt as the host makes it. ``change`` works on the body before it is signed."""
    settled = [entry.id for entry in entries if isinstance(entry.outcome, Fulfilled | Rejected)]
    ledger = Ledger(list(entries), settled)
    continuation = Continuation.from_ledger("return 1", "engine", SETTINGS, ledger)
    return Interrupt(
        requests=convert_to_pending_requests(ledger.waiting_entries),
        outer_tool_call_id="outer",
        continuation=packed(change(continuation.to_dict()), options, now_ms or current_ms()),
    )
