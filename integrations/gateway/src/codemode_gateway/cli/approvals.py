"""``codemode mcp approvals``: the calls that wait in the gateway's store, and a person's decision about them."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from codemode.cli.databases import require_database
from codemode.cli.exits import DONE, FAILED, UsageError
from codemode.errors import CodeModeError
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores.answers import check_answers
from codemode.stores.errors import AnswerRefusedError, UnknownRequestError
from codemode.stores.records import ALL_TENANTS
from codemode.trace.visible_text import aligned, counted, one_line, program_lines, visible

from .setup import actor, configuration, controlling_terminal, read_store_config, typed, warn, with_store

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest

    from ..approvals.pending_store import LaterCalls
    from ..approvals.remembered import Remembered, RememberedAnswer
    from ..config.model import GatewayConfig


_MAX_INPUT_CHARACTERS = 60
_MAX_LINE_CHARACTERS = 160
_NEAR_LINES = 2


def table(records: Sequence[Record]) -> str:
    """Return one line for each call that waits, and one for a run that was cut off and asks nothing."""
    rows = [("run", "call", "server", "tool", "line", "input", "until")]
    rows += [_row(record, one) for record in records for one in waiting(record)]
    return "\n".join(aligned(rows))


def waiting(record: Record) -> list[StoredRequest]:
    """Return the calls of a record about which a person may decide."""
    return [one for one in record.requests if one.state == "waiting"]


def card(record: Record, request: StoredRequest) -> str:
    """Return all that is known of one call, on lines of its own: the input whole, however long."""
    server, tool = server_and_tool(request.tool_name)
    rows = [("call", request.interrupt_id), ("server", server), ("tool", tool), ("kind", request.kind)]
    if record.tenant != "local":
        rows.append(("of", record.tenant))
    if request.annotations:
        rows.append(("it says of itself", _json(request.annotations)))
    if request.refusal:
        rows.append(("the last answer was refused", request.refusal))
    shown = aligned([(f"  {label}", visible(value)) for label, value in rows])
    shown += _program_lines(record.source, request.line)
    return "\n".join([*shown, "  input", _indented(_json(request.input, indent=2))])


def whole_record(record: Record) -> str:
    """Return a record with its program and all its calls."""
    rows = [("run", record.id), ("state", record.state), ("since", shown_time(record.created_at_ms))]
    rows += [("until", shown_time(record.expires_at_ms)), ("principal", record.tenant)]
    if record.not_resumable:
        rows.append(("cannot go on because", record.not_resumable))
    parts = ["\n".join(aligned([(label, visible(value)) for label, value in rows]))]
    parts += [card(record, one) for one in record.requests]
    if record.source is not None:
        parts.append(f"program\n{_numbered(record.source)}")
    if record.outcome is not None:
        ended = record.outcome.error if record.outcome.error is not None else _json(record.outcome.value, indent=2)
        parts.append(f"outcome\n{_indented(ended)}")
    return "\n\n".join(parts)


def server_and_tool(name: str) -> tuple[str, str]:
    """Return the two halves of a call's name."""
    server, dot, tool = name.partition(".")
    return (server, tool) if dot else ("", name)


def shown_time(at_ms: int) -> str:
    """Return a moment of Unix time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _row(record: Record, request: StoredRequest) -> tuple[str, ...]:
    server, tool = server_and_tool(request.tool_name)
    return (
        visible(record.id),
        visible(request.interrupt_id),
        one_line(server, 40),
        one_line(tool, 40),
        "" if request.line is None else str(request.line),
        one_line(_json(request.input), _MAX_INPUT_CHARACTERS),
        shown_time(record.expires_at_ms),
    )


def _program_lines(source: str | None, line: int | None) -> list[str]:
    if line is None:
        return []
    lines = [] if source is None else program_lines(source)
    if not 0 < line <= len(lines):
        return [f"  line {line} of the program"]
    first = max(line - _NEAR_LINES, 1)
    near = list(enumerate(lines, 1))[first - 1 : line + _NEAR_LINES]
    return ["  program"] + [
        f"  {'>' if number == line else ' '} {number:4} {one_line(text, _MAX_LINE_CHARACTERS)}" for number, text in near
    ]


def _numbered(source: str) -> str:
    return "\n".join(
        f"  {number:4} {visible(text)}" for number, text in enumerate(program_lines(source) or [source], 1)
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible(text, keep="\n").split("\n"))


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# Forgetting an answer needs no confirmation: people are asked again, and the audit records who forgot it.

_MAX_NAME_CHARACTERS = 200


def run_remembered(options: argparse.Namespace) -> int:
    """List the answers that always hold, or take some back."""
    from ..approvals.remembered import Remembered
    from ..gateway.gateway import Gateway

    config = configuration(options)
    remembered = Remembered(Gateway(config).folder)
    if options.action == "remembered":
        return _list_remembered(remembered.always(options.user), as_json=options.json)
    return _forget(remembered, config, options)


def _list_remembered(found: Sequence[RememberedAnswer], *, as_json: bool) -> int:
    if as_json:
        # In ASCII: a name may hold what moves the cursor, and other escapes than JSON's would not be read back.
        print(json.dumps({"remembered": [_as_json(one) for one in found]}, indent=2))
        return DONE
    rows = [("principal", "server", "tool", "since")]
    rows += [(_name(one.principal), _name(one.server), _name(one.tool), shown_time(one.at_ms)) for one in found]
    if found:
        print("\n".join(aligned(rows)))
    holds = "holds while its tool stays as it was" if len(found) == 1 else "hold while their tools stay as they were"
    print(f"{counted(len(found), 'answer')} {holds}" if found else "no answer is remembered")
    return DONE


def _as_json(one: RememberedAnswer) -> dict[str, str]:
    return {"principal": one.principal, "server": one.server, "tool": one.tool, "since": shown_time(one.at_ms)}


def _forget(remembered: Remembered, config: GatewayConfig, options: argparse.Namespace) -> int:
    kept = remembered.always()
    meant = [one for one in kept if one.principal == options.user and _is_named(one, options)]
    if not meant:
        raise UsageError(_nothing_of_that_name(kept, options))
    gone = [one for one in meant if remembered.revoke(one.principal, one.server, one.tool)]
    print(f"took back {counted(len(gone), 'answer')} about {_named(options)}: gateways that run ask again")
    _write_down(gone, config, create=options.create)
    return DONE


def _write_down(gone: Sequence[RememberedAnswer], config: GatewayConfig, *, create: bool) -> None:
    """Write into the audit what was taken back: behind it, for a store that is away is to keep nobody from that."""
    from ..approvals.pending_store import note_forgotten

    async def written(store: InterruptStore) -> None:
        for one in gone:
            await note_forgotten(one, store, actor=actor())

    try:
        if config.settings.store is not None:
            require_database(config.settings.store, create=create)
        asyncio.run(with_store(config, written))
    except (CodeModeError, OSError, UsageError, ValueError) as error:
        warn(f"that holds, but no line of it was written into the audit: {error}")


def _is_named(one: RememberedAnswer, options: argparse.Namespace) -> bool:
    """Tell whether it is meant. Names are compared as they are shown: nobody can type what is hidden in one."""
    if visible(one.server) != visible(options.server):
        return False
    return options.tool is None or visible(one.tool) == visible(options.tool)


def _nothing_of_that_name(kept: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    said = f"no answer of {_name(options.user)} about {_named(options)} is remembered"
    return f"{said}: `{typed(options)} approvals remembered` lists what is{_suggestion(kept, options)}"


def _suggestion(kept: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    """Return what was meant: another user's answer of that name, else a name that is like it."""
    from ..config.config_file import near

    whose = next((one.principal for one in kept if _is_named(one, options)), None)
    if whose is not None:
        return f"; did you mean --user {_name(whose)}?"
    own = [one for one in kept if one.principal == options.user]
    tools = dict.fromkeys(_name(one.tool) for one in own if visible(one.server) == visible(options.server))
    if tools:
        return near(visible(options.tool or ""), tools)
    return near(visible(options.server), dict.fromkeys(_name(one.server) for one in own))


def _named(options: argparse.Namespace) -> str:
    return _name(options.server if options.tool is None else f"{options.server}.{options.tool}")


def _name(text: str) -> str:
    return one_line(text, _MAX_NAME_CHARACTERS)


# A decision is written to the store: the gateway that holds the program, or the next one on the same store, resumes it.

_PAGE = 200
_LEAST_CHARACTERS = 4
_NOT_GIVEN: Any = object()


def run(options: argparse.Namespace) -> int:
    """List what waits, show one run, decide after asking at the terminal, or do what is about remembered answers."""
    if options.action in ("remembered", "forget"):
        return run_remembered(options)
    config = read_store_config(options)
    if options.action is None:
        return _list_pending(config, options)
    if options.action == "show":
        return _show(config, options)
    return _decide(config, options)


def _list_pending(config: GatewayConfig, options: argparse.Namespace) -> int:
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
        except UnknownRequestError:
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
        except AnswerRefusedError as refused:
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
    from ..approvals.pending_store import LaterCalls

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
