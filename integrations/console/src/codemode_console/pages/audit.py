"""Pages of the audit and the history of decisions."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, fields
from typing import Any, cast
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from codemode import CodeModeError
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.stores import AuditLine, InterruptStore, StoredRequest, verify_audit
from codemode.stores.records import Tenants

from ..bodies import read_small_form
from ..decisions import describe_audit_decision
from ..errors import Problem
from ..principals import (
    Principal,
    audit_refusal_within_quota,
    get_audit_tenant,
    require_principal,
    select_visible_tenants,
)
from ..record_view import DiffLine, create_audit_diff_lines
from ..rendering import create_headline, render_page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible_text import Excerpt, create_excerpt, create_time_element
from .console_context import ConsoleContext

LINES_PER_PAGE = 50
MAX_SCANNED_LINES = 1000
"""Lines scanned for one page."""
DECISION_KINDS = ("decided", "withdrawn", "closed", "run_again")
"""Kinds of lines of what somebody has decided."""
KIND_LABELS = {
    "put": "Requested",
    "decided": "Decided",
    "refused": "Answer refused",
    "paused": "Paused again",
    "completed": "Completed",
    "failed": "Failed",
    "lost": "Lost",
    "closed": "Closed",
    "run_again": "Run again",
    "expired": "Expired",
    "withdrawn": "Withdrawn",
    "purged": "Deleted",
    "notice_failed": "Notification failed",
    "unreadable": "Line unreadable",
    "signed_in": "Signed in",
    "signed_out": "Signed out",
    "sign_in_failed": "Sign-in failed",
    "request_refused": "Request refused",
    "audit_exported": "Audit exported",
    "program_confirmed": "Saved program confirmed",
    "program_disabled": "Saved program disabled",
    "program_enabled": "Saved program enabled",
}
_KINDS_BY_LABEL = {label: kind for kind, label in KIND_LABELS.items()}
_LINE_FIELDS = tuple(field.name for field in fields(AuditLine))
_COLUMN_FIELDS = frozenset({"sequence", "at_ms", "kind", "actor", "tenant", "record_id", "address", "diff", "details"})
_RECORD_ID = re.compile("[A-Za-z0-9_-]{1,200}")
_MAX_LISTED_TOOLS = 5
_CHAIN_FIELDS = frozenset({"salt", "previous", "hash"})


@dataclass(frozen=True, slots=True)
class AuditLinesPage:
    """Lines, newest first. ``next_cursor`` is the sequence to continue after; None at the end."""

    lines: tuple[AuditLine, ...]
    next_cursor: int | None


async def find_audit_lines(
    store: InterruptStore, tenant: Tenants, after: str | None, matches: Callable[[AuditLine], bool] | None = None
) -> AuditLinesPage:
    """Return a page of matching lines, scanning at most `MAX_SCANNED_LINES`. Raises `Problem` 400."""
    matching: list[AuditLine] = []
    scanned, last_sequence = 0, None
    scan_limit = LINES_PER_PAGE + 1 if matches is None else MAX_SCANNED_LINES
    async for line in store.audit(tenant=tenant, newest_first=True, after=parse_cursor(after), limit=scan_limit):
        scanned += 1
        if matches is None or matches(line):
            if len(matching) == LINES_PER_PAGE:
                return AuditLinesPage(tuple(matching), last_sequence)
            matching.append(line)
        last_sequence = line.sequence
    return AuditLinesPage(tuple(matching), last_sequence if scanned == scan_limit else None)


def parse_cursor(text: str | None) -> int | None:
    """Parse the cursor of a page. Raises `Problem` 400."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400, "There is no such page")
    return int(text)


def audit_line_to_json(line: AuditLine) -> dict[str, Any]:
    """Return all fields of a line, as its hash covers them, and the hash."""
    return {name: getattr(line, name) for name in _LINE_FIELDS}


async def to_json_lines(lines: Sequence[AuditLine]) -> str:
    """Return lines as ASCII JSON Lines; runs off the event loop."""
    return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: "".join(map(_to_json_line, lines)))


def _to_json_line(line: AuditLine) -> str:
    return json.dumps(audit_line_to_json(line), separators=(",", ":"), default=repr) + "\n"


@dataclass(frozen=True, slots=True)
class AuditLineView:
    """A line for a page. All fields are plain text except ``when``, ``diff``, ``details`` and ``headline``.

    ``event`` is what happened; ``decision`` uses the words of cards.
    """

    sequence: str
    when: Markup
    kind: str
    event: str
    actor: str
    tenant: str
    address: str
    record_id: str
    has_page: bool
    tool: str
    decision: str
    reason: Excerpt | None
    diff: tuple[DiffLine, ...]
    details: Excerpt | None
    headline: Markup | None = None


async def create_audit_line_views(
    lines: Sequence[AuditLine], calls: Mapping[tuple[str, str], StoredRequest] | None = None
) -> list[AuditLineView]:
    """Return lines for a page, with the headlines of ``calls`` by record and request; runs off the event loop."""
    known = calls or {}
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS,
        lambda: [
            _create_audit_line_view(line, known.get((_to_text(line.record_id), _to_text(line.interrupt_id))))
            for line in lines
        ],
    )


def _create_audit_line_view(line: AuditLine, call: StoredRequest | None = None) -> AuditLineView:
    extra_fields = {name: getattr(line, name) for name in _LINE_FIELDS if name not in _COLUMN_FIELDS | _CHAIN_FIELDS}
    details = {name: value for name, value in extra_fields.items() if value not in (None, "", (), {})}
    if line.details:
        details["details"] = line.details
    if line.diff:
        details["diff"] = list(line.diff)
    kind = _to_text(line.kind)
    decision_text = describe_audit_decision(_to_text(line.decision) or kind)
    return AuditLineView(
        sequence=_to_text(line.sequence),
        when=create_time_element(line.at_ms) if type(line.at_ms) is int else Markup(),
        kind=kind,
        event=decision_text.capitalize() if kind == "decided" else KIND_LABELS.get(kind, kind),
        actor=_to_text(line.actor),
        tenant=_to_text(line.tenant),
        address=_to_text(line.address),
        record_id=_to_text(line.record_id),
        has_page=_RECORD_ID.fullmatch(_to_text(line.record_id)) is not None,
        tool=_to_text(line.tool_name) or ", ".join(_list_requested_tool_names(line)),
        decision=decision_text,
        reason=create_excerpt(_to_text(line.reason)) if line.reason else None,
        diff=tuple(create_audit_diff_lines([entry for entry in line.diff if isinstance(cast("Any", entry), Mapping)])),
        details=create_excerpt(json.loads(json.dumps(details, default=repr))) if details else None,
        headline=None if call is None else create_headline(call),
    )


def _list_requested_tool_names(line: AuditLine) -> list[str]:
    """Return the tools in the details of a pause."""
    details: Any = line.details
    requests: Any = cast("Mapping[str, Any]", details).get("requests") if isinstance(details, Mapping) else None
    requested_calls = cast("list[Any]", requests)[:_MAX_LISTED_TOOLS] if isinstance(requests, list) else []
    return [_to_text(cast("dict[str, Any]", call).get("tool")) for call in requested_calls if isinstance(call, dict)]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else repr(value)[:200]


_log = logging.getLogger("codemode.console")
VERIFY_TIMEOUT_SECONDS = 60.0
MAX_EXPORTS = 4
MAX_EXPORTS_PER_USER = 2
_VERIFY_FORM_SUBJECT = "audit/verify"
_LINES_PER_CHUNK = 100


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """The result of a verification; ``is_intact`` is None if it did not finish."""

    is_intact: bool | None
    message: str
    sequence: int | None = None
    reason: str | None = None


def routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of ``/audit``."""
    verifier, exporter = _Verifier(context), _Exporter(context)

    async def show_audit(request: Request) -> Response:
        return await _render_audit_page(context, request, None)

    async def verify_and_show_audit(request: Request) -> Response:
        form, principal = await read_small_form(request), require_principal(request)
        try:
            principal.require_form_token(form.get(TOKEN_FIELD), _VERIFY_FORM_SUBJECT)
        except Problem as problem:
            await audit_refusal_within_quota(context.store, principal, request, problem.message)
            raise
        return await _render_audit_page(context, request, await verifier.verify(form.get("head", "").strip()))

    return [
        Route("/audit", show_audit, methods=["GET"]),
        Route("/audit/verify", verify_and_show_audit, methods=["POST"]),
        Route("/audit/export", exporter.export, methods=["GET"]),
    ]


async def _render_audit_page(
    context: ConsoleContext, request: Request, verification: AuditVerification | None
) -> Response:
    principal = require_principal(request)
    filters = {name: request.query_params.get(name, "").strip() for name in ("tenant", "kind", "actor", "record")}

    line_filters = {**filters, "kind": _KINDS_BY_LABEL.get(filters["kind"], filters["kind"])}

    def matches_filters(line: AuditLine) -> bool:
        pairs = (("kind", line.kind), ("actor", line.actor), ("record", line.record_id))
        return all(line_filters[name] in ("", value) for name, value in pairs)

    active_filters = {name: value for name, value in filters.items() if value}
    tenants = select_visible_tenants(principal.user, filters["tenant"])
    lines_page = await find_audit_lines(
        context.store, tenants, request.query_params.get("after"), matches_filters if active_filters else None
    )
    token = principal.create_form_token(_VERIFY_FORM_SUBJECT)
    if wants_json(request):
        verification_json = (
            None if verification is None else {"isWhole": verification.is_intact, "message": verification.message}
        )
        if verification_json is not None and verification is not None:
            verification_json |= {"sequence": verification.sequence, "reason": verification.reason}
        lines = [audit_line_to_json(line) for line in lines_page.lines]
        return JSONResponse(
            {"lines": lines, "next": lines_page.next_cursor, "checked": verification_json, "formToken": token}
        )
    next_query = (
        None if lines_page.next_cursor is None else urlencode({**active_filters, "after": lines_page.next_cursor})
    )
    values: dict[str, Any] = {
        "filters": filters,
        "verification": verification,
        "token": token,
        "next_query": next_query,
    }
    values |= {"max_scanned": MAX_SCANNED_LINES, "kinds": KIND_LABELS.values()}
    return render_page(request, "audit.html", lines=await create_audit_line_views(lines_page.lines), **values)


class _Verifier:
    """Verifies the audit, one run at a time, against the last verified head."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._is_busy = False
        self._verified_head: str | None = None

    async def verify(self, expected_head: str) -> AuditVerification:
        """Verify all lines within `VERIFY_TIMEOUT_SECONDS`. Raises `Problem` 429 while another one runs."""
        if self._is_busy:
            raise Problem(429, "The audit is being checked", "Try again in a moment.", headers={"Retry-After": "5"})
        self._is_busy = True
        try:
            async with asyncio.timeout(VERIFY_TIMEOUT_SECONDS):
                return await self._verify_and_remember_head(expected_head)
        except TimeoutError:
            message = (
                f"There are too many lines to check here: the check stopped after {VERIFY_TIMEOUT_SECONDS:.0f} seconds."
            )
            return AuditVerification(None, f"{message} Run verify_audit on another machine.")
        finally:
            self._is_busy = False

    async def _verify_and_remember_head(self, expected_head: str) -> AuditVerification:
        store = self._context.store
        head = await store.audit_head()
        try:
            broken_line = await verify_audit(store, expected_head or self._verified_head)
        except ValueError:
            raise Problem(400, "This is not a head of an audit", "Enter a head that this page has shown.") from None
        if broken_line is None:
            self._verified_head = head
            return AuditVerification(True, f"All lines are intact. Head: {head}")
        defects = {"changed": "was changed", "missing": "is missing", "rewritten": "was rewritten"}
        message = f"Line {broken_line.sequence} {defects[broken_line.reason]}. Lines from there on prove nothing."
        return AuditVerification(False, message, broken_line.sequence, broken_line.reason)


class _Exporter:
    """Streams all visible audit lines as a download; limits concurrent downloads and audits each."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._active_by_user: Counter[str] = Counter()

    async def export(self, request: Request) -> Response:
        """Stream all lines. The export is audited before the first line is read."""
        principal = require_principal(request)
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Problem(403, "This was not sent from a page of the console", "Download it there.")
        slot = ExitStack()
        slot.enter_context(self._hold_slot(principal.user.name))
        try:
            if request.method == "GET":
                attribution: dict[str, Any] = {"actor": principal.user.name, "address": principal.address}
                await self._context.store.add_audit_line(
                    "audit_exported", tenant=get_audit_tenant(principal.user), **attribution
                )
        except BaseException:
            slot.close()
            raise
        return _ExportResponse(self._iterate_json_lines(principal), slot)

    @contextmanager
    def _hold_slot(self, name: str) -> Generator[None]:
        if self._active_by_user[name] >= MAX_EXPORTS_PER_USER or self._active_by_user.total() >= MAX_EXPORTS:
            raise Problem(429, "Too many downloads are running", "Wait until one ends.", headers={"Retry-After": "30"})
        self._active_by_user[name] += 1
        try:
            yield
        finally:
            self._active_by_user -= Counter([name])

    async def _iterate_json_lines(self, principal: Principal) -> AsyncGenerator[bytes]:
        audit_lines = self._context.store.audit(tenant=select_visible_tenants(principal.user, ""))
        async with aclosing(audit_lines) as lines:
            batch: list[AuditLine] = []
            async for line in lines:
                batch.append(line)
                if len(batch) == _LINES_PER_CHUNK:
                    yield (await to_json_lines(batch)).encode()
                    batch = []
            if batch:
                yield (await to_json_lines(batch)).encode()


class _ExportResponse(StreamingResponse):
    """A streamed export that holds its slot until it ends."""

    def __init__(self, lines: AsyncGenerator[bytes], slot: ExitStack) -> None:
        headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
        super().__init__(lines, headers=headers, media_type="application/x-ndjson")
        self._lines, self._slot = lines, slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            try:
                if scope["method"] == "HEAD":
                    await Response(headers=dict(self.headers))(scope, receive, send)
                else:
                    await super().__call__(scope, receive, send)
            except CodeModeError:
                # The client sees an incomplete response.
                _log.warning("an audit download was aborted", exc_info=True)
            finally:
                await self._lines.aclose()


def create_decision_history_routes(context: ConsoleContext) -> list[BaseRoute]:
    """Return the route of ``/history``."""

    async def show_history(request: Request) -> Response:
        filters = {name: request.query_params.get(name, "").strip() for name in ("tenant", "tool", "actor")}

        def matches_filters(line: AuditLine) -> bool:
            if line.kind not in DECISION_KINDS:
                return False
            return filters["tool"] in ("", line.tool_name) and filters["actor"] in ("", line.actor)

        tenants = select_visible_tenants(require_principal(request).user, filters["tenant"])
        lines_page = await find_audit_lines(context.store, tenants, request.query_params.get("after"), matches_filters)
        if wants_json(request):
            return JSONResponse(
                {"decisions": [audit_line_to_json(entry) for entry in lines_page.lines], "next": lines_page.next_cursor}
            )
        active_filters = {name: value for name, value in filters.items() if value}
        next_query = (
            None if lines_page.next_cursor is None else urlencode({**active_filters, "after": lines_page.next_cursor})
        )
        values: dict[str, Any] = {"filters": filters, "next_query": next_query, "max_scanned": MAX_SCANNED_LINES}
        record_ids = {line.record_id for line in lines_page.lines if isinstance(line.record_id, str)}
        records = await context.store.records([*record_ids], tenant=tenants)
        calls = {(record.id, call.interrupt_id): call for record in records for call in record.requests}
        return render_page(
            request, "history.html", lines=await create_audit_line_views(lines_page.lines, calls), **values
        )

    return [Route("/history", show_history, methods=["GET"])]
