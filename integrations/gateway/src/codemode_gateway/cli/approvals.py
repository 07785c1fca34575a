"""``codemode mcp approvals``: the calls that wait in the gateway's store, and a person's decision about them.

Deciding is writing it down: the gateway that holds the program, or the next one on the same store, goes on with it.
What was remembered of answers is `remembered`'s to show and take back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from codemode.cli.exits import DONE, FAILED, UsageError
from codemode.errors import CodeModeError
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores.answers import check_answers
from codemode.stores.errors import AnswerRefused, UnknownRequest
from codemode.stores.records import ALL_TENANTS
from codemode.trace.visible_text import counted, visible

from . import remembered
from .pending_call_view import card, table, waiting, whole_record
from .setup import typed, warn
from .store import actor, read_store_config, with_store
from .tty_prompt import controlling_terminal

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest

    from ..approvals.later_calls import LaterCalls
    from ..config.values import GatewayConfig

_PAGE = 200
_LEAST_CHARACTERS = 4
_NOT_GIVEN: Any = object()


def run(options: argparse.Namespace) -> int:
    """List what waits, show one run, decide after asking at the terminal, or do what is about remembered answers."""
    if options.action in ("remembered", "forget"):
        return remembered.run(options)
    config = read_store_config(options)
    if options.action is None:
        return _list(config, options)
    if options.action == "show":
        return _show(config, options)
    return _decide(config, options)


def _list(config: GatewayConfig, options: argparse.Namespace) -> int:
    found = asyncio.run(with_store(config, _all_waiting))
    calls = sum(len(waiting(one)) for one in found)
    if calls:
        print(table(found))
    else:
        if options.store is None:
            said = "" if config.path is None else f" with the configuration {visible(str(config.path))}"
            warn(f"this is of the gateway{said}; --config names another one's")
    print(f"{counted(calls, 'call')} of {counted(len(found), 'run')} {'waits' if calls == 1 else 'wait'} for a person")
    return DONE


def _show(config: GatewayConfig, options: argparse.Namespace) -> int:
    async def found(store: InterruptStore) -> Record:
        try:
            return await store.record(options.id, tenant=ALL_TENANTS)
        except UnknownRequest:
            return (await _found(store, options))[0]

    print(whole_record(asyncio.run(with_store(config, found))))
    return DONE


def _decide(config: GatewayConfig, options: argparse.Namespace) -> int:
    approves = options.action == "approve"
    edited = _json_of(options.input, "--input") if approves and options.input is not None else _NOT_GIVEN

    async def found(store: InterruptStore) -> tuple[Record, list[StoredRequest], dict[str, str]]:
        record, requests = await _found(store, options)
        return record, requests, {one.interrupt_id: store.shown(one) for one in requests}

    with controlling_terminal(f"`approvals {options.action}`") as terminal:
        record, requests, seen = asyncio.run(with_store(config, found))
        if edited is not _NOT_GIVEN and len(requests) != 1:
            raise UsageError(f"--input is for one call: {counted(len(requests), 'call')} of this run wait")
        decisions = {one.interrupt_id: _decision(one, options, edited) for one in requests}
        try:
            check_answers(requests, decisions)  # before somebody says yes to what the store would refuse
        except AnswerRefused as refused:
            return _nothing_decided(refused, options)
        for one in requests:
            terminal.say(f"\n{card(record, one)}")
        if edited is not _NOT_GIVEN:
            terminal.say(f"  it would run with\n    {visible(json.dumps(edited, ensure_ascii=False))}")
        later = _later(record, requests, options) if approves else None
        what = "this call" if len(requests) == 1 else f"these {len(requests)} calls"
        more = "" if later is None else f", and {later.words}"
        if not terminal.agrees(f"\n{'Allow' if approves else 'Refuse'} {what}{more}?"):
            terminal.say("Nothing was decided.")
            return FAILED

    async def written(store: InterruptStore) -> int:
        code = await _written(store, record, decisions, seen, options)
        if code == DONE and later is not None:
            await _kept(later, config, store, record)
        return code

    return asyncio.run(with_store(config, written))


async def _written(
    store: InterruptStore,
    record: Record,
    decisions: dict[str, Any],
    seen: dict[str, str],
    options: argparse.Namespace,
) -> int:
    try:
        await store.decide(decisions, actor=actor(), tenant=record.tenant, seen=seen)
    except CodeModeError as error:
        return _nothing_decided(error, options)
    print(f"decided {counted(len(decisions), 'call')} of run {visible(record.id)}; a gateway that runs goes on with it")
    return DONE


def _nothing_decided(error: CodeModeError, options: argparse.Namespace) -> int:
    warn(f"nothing was decided: {error.message}; `{typed(options)} approvals` lists what still waits")
    return FAILED


async def _kept(later: LaterCalls, config: GatewayConfig, store: InterruptStore, record: Record) -> None:
    from ..approvals.remembered import Remembered
    from ..gateway.gateway import Gateway

    try:
        await later.keep(Remembered(Gateway(config).folder), store, record, actor=actor())
    except (OSError, CodeModeError) as error:
        warn(f"the call was decided, and later ones are asked about again: {error}")


def _decision(request: StoredRequest, options: argparse.Namespace, edited: Any) -> dict[str, Any]:
    approves = options.action == "approve"
    if request.kind == UNKNOWN_OUTCOME_KIND:
        return _said_of_doubt(request, options)
    if approves and (options.run_again or options.happened is not None):
        raise UsageError(
            f"call {visible(request.interrupt_id)} has not begun: --happened and --run-again are for calls in doubt"
        )
    if request.kind != APPROVAL_KIND:
        raise UsageError(
            f"call {visible(request.interrupt_id)} waits for no approval, but for: {visible(request.kind)}"
        )
    decision: dict[str, Any] = {"approved": approves}
    if options.reason:
        decision["reason"] = options.reason
    return decision if edited is _NOT_GIVEN else {**decision, "input": edited}


def _later(record: Record, requests: list[StoredRequest], options: argparse.Namespace) -> LaterCalls | None:
    """Return the later calls for which the answer is to hold too."""
    if not options.session and not options.always:
        return None
    from ..approvals.later_calls import LaterCalls

    try:
        return LaterCalls.of(record, requests, "always" if options.always else "session")
    except ValueError as error:
        raise UsageError(f"{error}; leave out --session and --always") from error


def _said_of_doubt(request: StoredRequest, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a person says of a call that has begun and of which nobody knows how it ended."""
    if options.action == "deny":
        return {"error": {"message": options.reason or "a person says that this call has failed"}}
    if options.happened is not None:
        return {"value": _json_of(options.happened, "--happened")}
    if options.run_again:
        return {"runAgain": True}
    raise UsageError(
        f"nobody knows whether call {visible(request.interrupt_id)} has happened: find out, then say"
        " --happened JSON (what it gave), --run-again (it has not), or `approvals deny` (it has failed)"
    )


def _json_of(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{what} is no JSON: {error}") from error


async def _found(store: InterruptStore, options: argparse.Namespace) -> tuple[Record, list[StoredRequest]]:
    """Return the run that is meant and which of its calls, all that wait for the id of a run, or its beginning."""
    given = options.id
    records = await _all_waiting(store)
    begun = [one.id for one in records if len(given) >= _LEAST_CHARACTERS and one.id.startswith(given)]
    if len(begun) > 1:
        raise UsageError(f"the ids of {len(begun)} runs begin with {visible(given)}: say more of it")
    for listed in records:
        calls = waiting(listed)
        meant = calls if listed.id in begun else [one for one in calls if one.interrupt_id == given]
        if meant:
            record = await store.record(listed.id, tenant=listed.tenant)
            now = {one.interrupt_id: one for one in waiting(record)}
            left = [now[one.interrupt_id] for one in meant if one.interrupt_id in now]
            if left:
                return record, left
    what = f"`{typed(options)} approvals` lists what does"
    if options.config is None:
        what += ", of the gateway whose configuration is given by --config"
    if len(given) < _LEAST_CHARACTERS:
        what = f"say at least {_LEAST_CHARACTERS} characters of an id"
    raise UsageError(f"nothing waits under {visible(given)}: {what}")


async def _all_waiting(store: InterruptStore) -> list[Record]:
    found: list[Record] = []
    after: str | None = None
    while True:
        page = await store.list(tenant=ALL_TENANTS, state="waiting", after=after, limit=_PAGE)
        found += [one for one in page.records if waiting(one)]
        after = page.next
        if after is None:
            return found
