"""Run ``codemode mcp approvals``: list pending calls and decide about them."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from codemode.cli.databases import require_existing_sqlite_file
from codemode.cli.exits import FAILED, SUCCEEDED, UsageError
from codemode.errors import CodeModeError
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores.answers import require_valid_answers
from codemode.stores.errors import AnswerRefusedError, UnknownRequestError
from codemode.stores.records import ALL_TENANTS
from codemode.trace.visible_text import (
    align_columns,
    clip_to_visible_line,
    escape_invisible,
    format_count,
    split_program_lines_if_unambiguous,
)

from .command_context import (
    get_audit_actor,
    get_typed_command_prefix,
    load_config_with_store,
    load_configuration_and_warn,
    open_controlling_terminal,
    print_json,
    run_with_store,
    warn,
)

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest

    from ..approvals.pending_store import StandingApproval
    from ..approvals.remembered_answers import RememberedAnswer, RememberedAnswers
    from ..config.model import GatewayConfig


_MAX_INPUT_CHARACTERS = 60
_MAX_LINE_CHARACTERS = 160
_CONTEXT_LINES = 2


def format_pending_calls(records: Sequence[Record]) -> str:
    """Return a table with one line for each pending call."""
    rows = [("run", "call", "server", "tool", "line", "input", "until")]
    rows += [_to_call_row(record, request) for record in records for request in get_waiting_requests(record)]
    return "\n".join(align_columns(rows))


def get_waiting_requests(record: Record) -> list[StoredRequest]:
    """Return the calls of a record that wait for a decision."""
    return [request for request in record.requests if request.state == "waiting"]


def format_call(record: Record, request: StoredRequest) -> str:
    """Return the details of a call, one per line, with its whole input."""
    server, tool = split_tool_name(request.tool_name)
    rows = [("call", request.interrupt_id), ("server", server), ("tool", tool), ("kind", request.kind)]
    if record.tenant != "local":
        rows.append(("principal", record.tenant))
    if request.annotations:
        rows.append(("annotations", _to_json_text(request.annotations)))
    if request.refusal:
        rows.append(("last answer refused", request.refusal))
    lines = align_columns([(f"  {label}", escape_invisible(value)) for label, value in rows])
    lines += _format_program_excerpt(record.source, request.line)
    return "\n".join([*lines, "  input", _escape_and_indent(_to_json_text(request.input, indent=2))])


def format_record(record: Record) -> str:
    """Return the details of a record with its program and all its calls."""
    rows = [("run", record.id), ("state", record.state), ("since", format_time(record.created_at_ms))]
    rows += [("until", format_time(record.expires_at_ms)), ("principal", record.tenant)]
    if record.not_resumable:
        rows.append(("cannot resume because", record.not_resumable))
    parts = ["\n".join(align_columns([(label, escape_invisible(value)) for label, value in rows]))]
    parts += [format_call(record, request) for request in record.requests]
    if record.source is not None:
        parts.append(f"program\n{_escape_and_number_lines(record.source)}")
    if record.outcome is not None:
        outcome_text = (
            record.outcome.error if record.outcome.error is not None else _to_json_text(record.outcome.value, indent=2)
        )
        parts.append(f"outcome\n{_escape_and_indent(outcome_text)}")
    return "\n\n".join(parts)


def _to_json_call(record: Record, request: StoredRequest) -> dict[str, Any]:
    """Return a call as a JSON object."""
    server, tool = split_tool_name(request.tool_name)
    return {
        "run": record.id,
        "call": request.interrupt_id,
        "principal": record.tenant,
        "server": server,
        "tool": tool,
        "kind": request.kind,
        "state": request.state,
        "line": request.line,
        "input": request.input,
        "annotations": request.annotations,
        "refusal": request.refusal,
        "until": format_time(record.expires_at_ms),
    }


def _to_json_record(record: Record) -> dict[str, Any]:
    outcome = record.outcome
    return {
        "run": record.id,
        "state": record.state,
        "since": format_time(record.created_at_ms),
        "until": format_time(record.expires_at_ms),
        "principal": record.tenant,
        "notResumable": record.not_resumable,
        "program": record.source,
        "calls": [_to_json_call(record, request) for request in record.requests],
        "outcome": None if outcome is None else {"value": outcome.value, "error": outcome.error},
    }


def split_tool_name(name: str) -> tuple[str, str]:
    """Split a tool name into server and tool."""
    server, dot, tool = name.partition(".")
    return (server, tool) if dot else ("", name)


def format_time(at_ms: int) -> str:
    """Format Unix milliseconds as UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _to_call_row(record: Record, request: StoredRequest) -> tuple[str, ...]:
    server, tool = split_tool_name(request.tool_name)
    return (
        escape_invisible(record.id),
        escape_invisible(request.interrupt_id),
        clip_to_visible_line(server, 40),
        clip_to_visible_line(tool, 40),
        "" if request.line is None else str(request.line),
        clip_to_visible_line(_to_json_text(request.input), _MAX_INPUT_CHARACTERS),
        format_time(record.expires_at_ms),
    )


def _format_program_excerpt(source: str | None, line: int | None) -> list[str]:
    if line is None:
        return []
    lines = [] if source is None else split_program_lines_if_unambiguous(source)
    if not 0 < line <= len(lines):
        return [f"  line {line} of the program"]
    first = max(line - _CONTEXT_LINES, 1)
    numbered_lines = list(enumerate(lines, 1))[first - 1 : line + _CONTEXT_LINES]
    return ["  program"] + [
        f"  {'>' if number == line else ' '} {number:4} {clip_to_visible_line(text, _MAX_LINE_CHARACTERS)}"
        for number, text in numbered_lines
    ]


def _escape_and_number_lines(source: str) -> str:
    return "\n".join(
        f"  {number:4} {escape_invisible(text)}"
        for number, text in enumerate(split_program_lines_if_unambiguous(source) or [source], 1)
    )


def _escape_and_indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in escape_invisible(text, keep="\n").split("\n"))


def _to_json_text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# Revoking an answer needs no confirmation: people are asked again, and the audit records who revoked it.

_MAX_NAME_CHARACTERS = 200


def list_or_revoke_remembered_answers(options: argparse.Namespace) -> int:
    """List remembered answers, or revoke some."""
    from ..approvals.remembered_answers import RememberedAnswers
    from ..gateway.gateway import Gateway

    config = load_configuration_and_warn(options) if options.store is None else load_config_with_store(options)
    remembered = RememberedAnswers(Gateway(config).folder)
    if options.action == "remembered":
        return _print_remembered_answers(remembered.list_permanent_answers(options.user), as_json=options.json)
    return _revoke_answers(remembered, config, options)


def _print_remembered_answers(answers: Sequence[RememberedAnswer], *, as_json: bool) -> int:
    if as_json:
        print_json({"remembered": [_to_json_answer(answer) for answer in answers]})
        return SUCCEEDED
    rows = [("principal", "server", "tool", "since")]
    rows += [
        (
            _escape_and_shorten_name(answer.principal),
            _escape_and_shorten_name(answer.server),
            _escape_and_shorten_name(answer.tool),
            format_time(answer.at_ms),
        )
        for answer in answers
    ]
    if answers:
        print("\n".join(align_columns(rows)))
    condition = "holds until its tool changes" if len(answers) == 1 else "hold until their tools change"
    print(f"{format_count(len(answers), 'answer')} {condition}" if answers else "no answer is remembered")
    return SUCCEEDED


def _to_json_answer(answer: RememberedAnswer) -> dict[str, str]:
    return {
        "principal": answer.principal,
        "server": answer.server,
        "tool": answer.tool,
        "since": format_time(answer.at_ms),
    }


def _revoke_answers(remembered: RememberedAnswers, config: GatewayConfig, options: argparse.Namespace) -> int:
    all_answers = remembered.list_permanent_answers()
    matching = [
        answer for answer in all_answers if answer.principal == options.user and _is_answer_selected(answer, options)
    ]
    if not matching:
        raise UsageError(_no_answer_message(all_answers, options))
    revoked = [
        answer
        for answer in matching
        if remembered.revoke_permanent_answers(answer.principal, answer.server, answer.tool)
    ]
    print(
        f"revoked {format_count(len(revoked), 'answer')} about {_format_server_or_tool(options)}:"
        " running gateways ask again"
    )
    _audit_revoked_answers(revoked, config, create=options.create)
    return SUCCEEDED


def _audit_revoked_answers(revoked: Sequence[RememberedAnswer], config: GatewayConfig, *, create: bool) -> None:
    """Record revoked answers in the audit, after the revocation, which must not depend on the store."""
    from ..approvals.pending_store import audit_revoked_answer

    async def write_audit_entries(store: InterruptStore) -> None:
        for answer in revoked:
            await audit_revoked_answer(answer, store, actor=get_audit_actor())

    try:
        if config.settings.store is not None:
            require_existing_sqlite_file(config.settings.store, create=create)
        asyncio.run(run_with_store(config, write_audit_entries))
    except (CodeModeError, OSError, UsageError, ValueError) as error:
        warn(f"the answers are revoked, but the audit has no entry: {error}")


def _is_answer_selected(answer: RememberedAnswer, options: argparse.Namespace) -> bool:
    """Return whether the options select this answer. Compares names as displayed, so that they can be typed."""
    if escape_invisible(answer.server) != escape_invisible(options.server):
        return False
    return options.tool is None or escape_invisible(answer.tool) == escape_invisible(options.tool)


def _no_answer_message(all_answers: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    problem = (
        f"no answer of {_escape_and_shorten_name(options.user)} about {_format_server_or_tool(options)} is remembered"
    )
    command = f"`{get_typed_command_prefix(options)} approvals remembered`"
    return f"{problem}: {command} lists them{_format_did_you_mean(all_answers, options)}"


def _format_did_you_mean(all_answers: Sequence[RememberedAnswer], options: argparse.Namespace) -> str:
    """Suggest another user's answer of that name, else a similar name."""
    from ..config.config_file import format_name_suggestion

    other_user = next((answer.principal for answer in all_answers if _is_answer_selected(answer, options)), None)
    if other_user is not None:
        return f"; did you mean --user {_escape_and_shorten_name(other_user)}?"
    user_answers = [answer for answer in all_answers if answer.principal == options.user]
    tools = dict.fromkeys(
        _escape_and_shorten_name(answer.tool)
        for answer in user_answers
        if escape_invisible(answer.server) == escape_invisible(options.server)
    )
    if tools:
        return format_name_suggestion(escape_invisible(options.tool or ""), tools)
    return format_name_suggestion(
        escape_invisible(options.server),
        dict.fromkeys(_escape_and_shorten_name(answer.server) for answer in user_answers),
    )


def _format_server_or_tool(options: argparse.Namespace) -> str:
    return _escape_and_shorten_name(options.server if options.tool is None else f"{options.server}.{options.tool}")


def _escape_and_shorten_name(text: str) -> str:
    return clip_to_visible_line(text, _MAX_NAME_CHARACTERS)


# Decisions go to the store. A gateway on the same store resumes the program.

_PAGE_SIZE = 200
_MIN_ID_CHARACTERS = 4
_NO_INPUT: Any = object()


def run_approvals_command(options: argparse.Namespace) -> int:
    """List pending calls, show a run, decide at the terminal, or list and revoke remembered answers."""
    if options.action in ("remembered", "forget"):
        return list_or_revoke_remembered_answers(options)
    config = load_config_with_store(options)
    if options.action is None:
        return _print_pending_calls(config, options)
    if options.action == "show":
        return _print_run(config, options)
    return _confirm_and_save_decisions(config, options)


def _print_pending_calls(config: GatewayConfig, options: argparse.Namespace) -> int:
    records = asyncio.run(run_with_store(config, _list_waiting_records))
    if options.json:
        print_json(
            {"calls": [_to_json_call(record, call) for record in records for call in get_waiting_requests(record)]}
        )
        return SUCCEEDED
    calls = sum(len(get_waiting_requests(record)) for record in records)
    if calls:
        print(format_pending_calls(records))
    else:
        if options.store is None:
            source = "" if config.path is None else f" with the configuration {escape_invisible(str(config.path))}"
            warn(f"this is the store of the gateway{source}; use --config for another gateway")
    print(
        f"{format_count(calls, 'call')} of {format_count(len(records), 'run')}"
        f" {'waits' if calls == 1 else 'wait'} for a person"
    )
    return SUCCEEDED


def _print_run(config: GatewayConfig, options: argparse.Namespace) -> int:
    async def find_record(store: InterruptStore) -> Record:
        try:
            return await store.record(options.id, tenant=ALL_TENANTS)
        except UnknownRequestError:
            return (await _find_run_and_calls_or_raise(store, options))[0]

    record = asyncio.run(run_with_store(config, find_record))
    if options.json:
        print_json(_to_json_record(record))
    else:
        print(format_record(record))
    return SUCCEEDED


def _confirm_and_save_decisions(config: GatewayConfig, options: argparse.Namespace) -> int:
    is_approval = options.action == "approve"
    edited_input = _parse_json(options.input, "--input") if is_approval and options.input is not None else _NO_INPUT

    async def find_calls(store: InterruptStore) -> tuple[Record, list[StoredRequest], dict[str, str]]:
        record, requests = await _find_run_and_calls_or_raise(store, options)
        return record, requests, {request.interrupt_id: store.compute_display_digest(request) for request in requests}

    with open_controlling_terminal(f"`approvals {options.action}`") as terminal:
        record, requests, displayed_values = asyncio.run(run_with_store(config, find_calls))
        if edited_input is not _NO_INPUT and len(requests) != 1:
            raise UsageError(f"--input is for one call, but {format_count(len(requests), 'call')} of this run wait")
        decisions = {request.interrupt_id: _build_decision(request, options, edited_input) for request in requests}
        try:
            require_valid_answers(requests, decisions)  # before asking, because the store would refuse them
        except AnswerRefusedError as refused:
            return _warn_undecided(refused, options)
        for request in requests:
            terminal.write_line(f"\n{format_call(record, request)}")
        if edited_input is not _NO_INPUT:
            terminal.write_line(f"  edited input\n    {escape_invisible(json.dumps(edited_input, ensure_ascii=False))}")
        standing_approval = _build_standing_approval(record, requests, options) if is_approval else None
        subject = "this call" if len(requests) == 1 else f"these {len(requests)} calls"
        extension = "" if standing_approval is None else f", and {standing_approval.description}"
        if not terminal.confirm(f"\n{'Allow' if is_approval else 'Deny'} {subject}{extension}?"):
            terminal.write_line("Nothing was decided.")
            return FAILED

    async def save_decisions_and_standing_approval(store: InterruptStore) -> int:
        code = await _save_decisions(store, record, decisions, displayed_values, options)
        if code == SUCCEEDED and standing_approval is not None:
            await _save_standing_approval(standing_approval, config, store, record)
        return code

    return asyncio.run(run_with_store(config, save_decisions_and_standing_approval))


async def _save_decisions(
    store: InterruptStore,
    record: Record,
    decisions: dict[str, Any],
    displayed_values: dict[str, str],
    options: argparse.Namespace,
) -> int:
    try:
        await store.decide(decisions, actor=get_audit_actor(), tenant=record.tenant, seen=displayed_values)
    except CodeModeError as error:
        return _warn_undecided(error, options)
    print(
        f"decided {format_count(len(decisions), 'call')} of run {escape_invisible(record.id)};"
        " a running gateway resumes it"
    )
    return SUCCEEDED


def _warn_undecided(error: CodeModeError, options: argparse.Namespace) -> int:
    warn(f"nothing was decided: {error.message}; `{get_typed_command_prefix(options)} approvals` lists pending calls")
    return FAILED


async def _save_standing_approval(
    standing_approval: StandingApproval, config: GatewayConfig, store: InterruptStore, record: Record
) -> None:
    from ..approvals.remembered_answers import RememberedAnswers
    from ..gateway.gateway import Gateway

    try:
        await standing_approval.audit_and_save(
            RememberedAnswers(Gateway(config).folder), store, record, actor=get_audit_actor()
        )
    except (OSError, CodeModeError) as error:
        warn(f"the call is decided, but later calls need approval again: {error}")


def _build_decision(request: StoredRequest, options: argparse.Namespace, edited_input: Any) -> dict[str, Any]:
    is_approval = options.action == "approve"
    if request.kind == UNKNOWN_OUTCOME_KIND:
        return _build_outcome_answer(request, options)
    if is_approval and (options.run_again or options.happened is not None):
        raise UsageError(
            f"call {escape_invisible(request.interrupt_id)} has not started:"
            " --happened and --run-again are for interrupted calls"
        )
    if request.kind != APPROVAL_KIND:
        raise UsageError(
            f"call {escape_invisible(request.interrupt_id)} waits for {escape_invisible(request.kind)},"
            " not for approval"
        )
    decision: dict[str, Any] = {"approved": is_approval}
    if options.reason:
        decision["reason"] = options.reason
    return decision if edited_input is _NO_INPUT else {**decision, "input": edited_input}


def _build_standing_approval(
    record: Record, requests: list[StoredRequest], options: argparse.Namespace
) -> StandingApproval | None:
    """Return the approval for later calls that the options request, or None."""
    if not options.session and not options.always:
        return None
    from ..approvals.pending_store import StandingApproval

    try:
        return StandingApproval.from_requests(record, requests, "always" if options.always else "session")
    except ValueError as error:
        raise UsageError(f"{error}; leave out --session and --always") from error


def _build_outcome_answer(request: StoredRequest, options: argparse.Namespace) -> dict[str, Any]:
    """Return the answer about a started call with an unknown outcome."""
    if options.action == "deny":
        return {"error": {"message": options.reason or "a person reported that this call failed"}}
    if options.happened is not None:
        return {"value": _parse_json(options.happened, "--happened")}
    if options.run_again:
        return {"runAgain": True}
    raise UsageError(
        f"the outcome of call {escape_invisible(request.interrupt_id)} is unknown: find out whether it happened,"
        " then use --happened JSON (its result), --run-again (it did not happen), or `approvals deny` (it failed)"
    )


def _parse_json(text: str, option_name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{option_name} is not JSON: {error}") from error


async def _find_run_and_calls_or_raise(
    store: InterruptStore, options: argparse.Namespace
) -> tuple[Record, list[StoredRequest]]:
    """Return the run with this id or id prefix and its pending calls, or the run and the call with this id."""
    id_or_prefix = options.id
    records = await _list_waiting_records(store)
    matching_run_ids = [
        record.id
        for record in records
        if len(id_or_prefix) >= _MIN_ID_CHARACTERS and record.id.startswith(id_or_prefix)
    ]
    if len(matching_run_ids) > 1:
        raise UsageError(
            f"the ids of {len(matching_run_ids)} runs begin with {escape_invisible(id_or_prefix)}: type more of it"
        )
    for listed_record in records:
        calls = get_waiting_requests(listed_record)
        matching_calls = (
            calls
            if listed_record.id in matching_run_ids
            else [call for call in calls if call.interrupt_id == id_or_prefix]
        )
        if matching_calls:
            record = await store.record(listed_record.id, tenant=listed_record.tenant)
            waiting_by_id = {call.interrupt_id: call for call in get_waiting_requests(record)}
            still_waiting = [
                waiting_by_id[call.interrupt_id] for call in matching_calls if call.interrupt_id in waiting_by_id
            ]
            if still_waiting:
                return record, still_waiting
    hint = f"`{get_typed_command_prefix(options)} approvals` lists pending calls"
    if options.config is None:
        hint += "; use --config for another gateway"
    if len(id_or_prefix) < _MIN_ID_CHARACTERS:
        hint = f"type at least {_MIN_ID_CHARACTERS} characters of an id"
    raise UsageError(f"no pending call or run has the id {escape_invisible(id_or_prefix)}: {hint}")


async def _list_waiting_records(store: InterruptStore) -> list[Record]:
    records: list[Record] = []
    after: str | None = None
    while True:
        page = await store.list(tenant=ALL_TENANTS, state="waiting", after=after, limit=_PAGE_SIZE)
        records += [record for record in page.records if get_waiting_requests(record)]
        after = page.next
        if after is None:
            return records
