"""The list of calls, filtered by tenant, app, tool, label and state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, Page, Record, StoredRequest, UnknownRequestError

from ..decisions import (
    BULK_SELECTION_SUBJECT,
    MAX_BULK_CALLS,
    compute_call_version,
    compute_decision_token_subject,
    describe_decision,
    encode_selection_value,
)
from ..errors import Problem
from ..principals import Principal, list_standing_choices, require_principal, select_visible_tenants
from ..rendering import InputLine, format_input_line, render_page, wants_json
from ..visible_text import is_all_visible, to_visible_text
from .console_context import ConsoleContext, record_to_json

_RECORDS_PER_PAGE = 50
_ORDER_LABELS = {"newest": "Newest first", "expiring": "Soonest to expire first"}
_STATE_LABELS = {
    "waiting": "Pending calls",
    "pending": "Pending and decided",
    "resuming": "Being resumed",
    "resting": "Resting",
    "lost": "Lost",
    "completed": "Completed",
    "failed": "Failed",
    "expired": "Expired",
    "withdrawn": "Withdrawn",
    "all": "All except resting",
}
_MAX_ROWS_PER_RECORD = 10
_MAX_LABELS = 10


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the route of the list."""

    async def show_call_list(request: Request) -> Response:
        query = _parse_query(request)
        tenants = select_visible_tenants(require_principal(request).user, query.tenant)
        counts = await context.store.count_waiting_requests(tenant=tenants, app=query.app or None)
        tool = _resolve_tool_name(query.tool, counts)
        try:
            records_page = await context.store.list(
                tenant=tenants,
                app=query.app or None,
                tool=tool or None,
                state=cast("Any", None if query.state == "all" else query.state),
                labels=query.labels,
                order=cast("Any", query.order),
                after=query.after or None,
                limit=query.limit,
            )
        except ValueError:
            raise Problem(400, "There is no such page", "The cursor is not valid for this list.") from None
        if wants_json(request):
            return JSONResponse(_records_page_to_json(records_page, counts))
        decided_call = await _load_decided_call_values(context, request)
        return await run_in_thread_if_large_or_slow(
            LARGE_CHARACTERS,
            lambda: _render_list_page(context, request, query, records_page, counts, tool, decided_call),
        )

    return [Route("/", show_call_list, methods=["GET"])]


@dataclass(frozen=True, slots=True)
class _ListQuery:
    """The filters and order of the list; "" if not set."""

    tenant: str
    app: str
    tool: str
    label: tuple[str, ...]
    state: str
    order: str
    after: str
    limit: int
    selects_all: bool

    @property
    def labels(self) -> dict[str, str]:
        """The labels by name."""
        return {name: text for name, _, text in (label.partition("=") for label in self.label)}

    @property
    def is_filtered(self) -> bool:
        """True if a filter besides the state is set."""
        return bool(self.tenant or self.app or self.tool or self.label)

    def to_query_string(self, **changed: Any) -> str:
        """Return the query string with some parameters changed."""
        defaults: dict[str, Any] = {"state": "waiting", "order": "newest", "limit": _RECORDS_PER_PAGE}
        names = ("tenant", "app", "tool", "label", "state", "order", "limit")
        values = {name: getattr(self, name) for name in names} | changed
        return urlencode(
            {name: value for name, value in values.items() if value and value != defaults.get(name)}, doseq=True
        )


def _parse_query(request: Request) -> _ListQuery:
    """Parse the query. Raises `Problem` 400."""
    params = request.query_params
    state, order, limit = params.get("state") or "waiting", params.get("order") or "newest", params.get("limit") or "50"
    if state not in _STATE_LABELS or order not in _ORDER_LABELS or (order == "expiring" and state != "waiting"):
        raise Problem(400, "There is no such list", 'The order "expiring" needs the state "waiting".')
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MAX_BULK_CALLS):
        raise Problem(400, "There is no such list", f"A page has from 1 to {MAX_BULK_CALLS} records.")
    label = tuple(dict.fromkeys(text for text in params.getlist("label") if text))
    if len({text.partition("=")[0] for text in label}) < len(label):
        raise Problem(400, "There is no such list", "Each label may be given once.")
    if len(label) > _MAX_LABELS or any("=" not in text for text in label):
        hint = f"For example ?label=customer=ada, at most {_MAX_LABELS} of them."
        raise Problem(400, "A label is written as name=text", hint)
    return _ListQuery(
        tenant=params.get("tenant", ""),
        app=params.get("app", ""),
        tool=params.get("tool", ""),
        label=label,
        state=state,
        order=order,
        after=params.get("after", ""),
        limit=int(limit),
        selects_all=params.get("select") == "all",
    )


def _resolve_tool_name(tool: str, counts: Mapping[str, int]) -> str:
    """Return the tool whose name, with escapes as pages show it, was sent."""
    if tool in counts:
        return tool
    matching_names = (
        name for name in counts if not is_all_visible(name) and to_visible_text(name, one_line=True) == tool
    )
    return next(matching_names, tool)


def _records_page_to_json(records_page: Page, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "records": [record_to_json(record) for record in records_page.records],
        "next": records_page.next,
        "counts": dict(counts),
    }


async def _load_decided_call_values(context: ConsoleContext, request: Request) -> dict[str, Any] | None:
    """Return the call that was just decided in the list; None without one."""
    record_id, _, number = request.query_params.get("done", "").partition("/")
    if not (record_id and number.isascii() and number.isdigit() and len(number) < 6):
        return None
    try:
        record = await context.store.record(record_id, tenant=ALL_TENANTS)
    except UnknownRequestError:
        return None
    if not require_principal(request).user.can_see(record.tenant) or not 1 <= int(number) <= len(record.requests):
        return None
    call = record.requests[int(number) - 1]
    return (
        {"record": record, "call": call, "decision_text": describe_decision(call)}
        if call.state in ("decided", "applied")
        else None
    )


def _render_list_page(
    context: ConsoleContext,
    request: Request,
    query: _ListQuery,
    records_page: Page,
    counts: Mapping[str, int],
    tool: str,
    decided_call: Any,
) -> Response:
    principal = require_principal(request)
    is_open = query.state in ("waiting", "pending") and principal.user.may_decide
    rows = [
        row
        for record in records_page.records
        for row in _create_rows(context, principal, record, tool, is_open=is_open)
    ]
    selectable_tools = {row.call.tool_name for row in rows if row.call is not None and row.selection}
    values: dict[str, Any] = {
        "rows": rows,
        "query": query,
        "tool": tool,
        "states": _STATE_LABELS,
        "orders": _ORDER_LABELS,
        "counts": [
            {"tool": tool_name, "count": count, "query": query.to_query_string(tool=tool_name)}
            for tool_name, count in counts.items()
        ],
        "pending": counts.get(tool, 0) if tool else sum(counts.values()),
        "decided_query": query.to_query_string(state="pending", order=""),
        "lost_query": query.to_query_string(state="lost", order=""),
        "all_tools_query": query.to_query_string(tool=""),
        "next_query": None if records_page.next is None else query.to_query_string(after=records_page.next),
        "select_all_query": query.to_query_string(select="all", after=query.after),
        "longer_query": query.to_query_string(limit=MAX_BULK_CALLS),
        "list_query": query.to_query_string(after=query.after),
        "is_longest_page": query.limit == MAX_BULK_CALLS,
        "may_select": bool(selectable_tools),
        "may_select_all": len(selectable_tools) == 1,
        "shows_tenants": len({record.tenant for record in records_page.records}) > 1,
        "selection_token": principal.create_form_token(BULK_SELECTION_SUBJECT),
        "max_calls": MAX_BULK_CALLS,
        "decided_call": decided_call,
    }
    return render_page(request, "list.html", **values)


@dataclass(frozen=True, slots=True)
class _CallRow:
    """One row. ``call`` is None for a record without requests; ``hidden_calls`` counts calls left out.

    ``selection`` is the value of its checkbox. ``form_fields`` let the row decide; they are only there if the row shows
    the whole input and nothing else has to be read or chosen.
    """

    record: Record
    call: StoredRequest | None
    number: int = 0
    input_line: InputLine | None = None
    selection: str | None = None
    form_fields: Mapping[str, str] | None = None
    hidden_calls: int = 0

    @property
    def is_unknown_outcome(self) -> bool:
        """True if the outcome of the call has to be entered."""
        return self.call is not None and self.call.state == "waiting" and self.call.kind == UNKNOWN_OUTCOME_KIND

    @property
    def decision_text(self) -> str:
        """The decision about its call, "" before it."""
        return (
            describe_decision(self.call) if self.call is not None and self.call.state in ("decided", "applied") else ""
        )

    @property
    def link_text(self) -> str:
        """The text of the link to its page."""
        if self.call is None or self.call.state != "waiting":
            return "Open"
        return {APPROVAL_KIND: "Review", UNKNOWN_OUTCOME_KIND: "Resolve"}.get(self.call.kind, "Answer")

    @property
    def fragment(self) -> str:
        """The fragment of its card; "" on pages with one call."""
        return f"#request-{self.number}" if self.call is not None and len(self.record.requests) > 1 else ""

    @property
    def agent(self) -> str:
        """The label "agent", else the app."""
        return self.record.labels.get("agent") or self.record.app

    @property
    def labels(self) -> list[tuple[str, str]]:
        """The other labels, at most `_MAX_LABELS`."""
        labels = [pair for pair in self.record.labels.items() if pair[0] not in ("agent", "link")]
        return labels[:_MAX_LABELS]

    @property
    def hidden_label_count(self) -> int:
        """The number of labels left out."""
        return max(0, len(self.record.labels.keys() - {"agent", "link"}) - _MAX_LABELS)


def _create_rows(
    context: ConsoleContext, principal: Principal, record: Record, tool: str, *, is_open: bool
) -> list[_CallRow]:
    numbered = list(enumerate(record.requests, 1))
    pending = [pair for pair in numbered if pair[1].state == "waiting" and tool in ("", pair[1].tool_name)]
    if not pending:  # listed for its state, by its last call
        return [_CallRow(record, call, number, format_input_line(call)) for number, call in numbered[-1:]] or [
            _CallRow(record, None)
        ]
    listed = pending[: MAX_BULK_CALLS if tool else _MAX_ROWS_PER_RECORD]
    rows: list[_CallRow] = []
    for position, (number, call) in enumerate(listed):
        input_excerpt, selection, form = (
            format_input_line(call) if position < _MAX_ROWS_PER_RECORD else None,
            None,
            None,
        )
        if is_open and call.kind == APPROVAL_KIND:
            selection = encode_selection_value(record.id, call.interrupt_id)
            if (
                input_excerpt is not None
                and input_excerpt.is_whole
                and not call.refusal
                and not list_standing_choices(context.standing_approvals, record, call)
            ):
                version, shown = compute_call_version(record, call), context.store.compute_display_digest(call)
                token = principal.create_form_token(compute_decision_token_subject(call.interrupt_id, version, shown))
                form = {"form_token": token, "version": version, "shown": shown}
        rows.append(_CallRow(record, call, number, input_excerpt, selection, form))
    rows[-1] = replace(rows[-1], hidden_calls=len(pending) - len(listed))
    return rows
