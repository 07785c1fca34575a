"""The audit, its verification and its download, and the history of decisions."""

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
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.stores import AuditLine, InterruptStore, verify_audit
from codemode.stores.records import Tenants

from ..bodies import read_small_form
from ..decisions import told_words
from ..errors import Problem
from ..record_view import DiffLine, told_diff
from ..rendering import page, wants_json
from ..sessions import TOKEN_FIELD
from ..visible import Cut, cut, moment
from ..visits import Principal, audit_refusal, audit_tenant, require_principal, visible_tenants
from .desk import ConsoleContext

PAGE = 50
MOST_SCANNED = 1000
"""So many lines are looked at for one page."""
DECISIONS = ("decided", "withdrawn", "closed", "run_again")
"""Kinds of lines of what somebody has decided."""
KIND_WORDS = {
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
_KINDS = {words: kind for kind, words in KIND_WORDS.items()}
_FIELDS = tuple(one.name for one in fields(AuditLine))
_SHOWN_APART = frozenset({"sequence", "at_ms", "kind", "actor", "tenant", "record_id", "address", "diff", "details"})
_NAME = re.compile("[A-Za-z0-9_-]{1,200}")
_TOOLS_SHOWN = 5
_PROOF = frozenset({"salt", "previous", "hash"})


@dataclass(frozen=True, slots=True)
class Found:
    """Lines, the newest first. ``next`` is the sequence behind which there may be more; None at the end."""

    lines: tuple[AuditLine, ...]
    next: int | None


async def find(
    store: InterruptStore, tenant: Tenants, after: str | None, fits: Callable[[AuditLine], bool] | None = None
) -> Found:
    """Return a page of lines, of at most `MOST_SCANNED` that are looked at. Raises `Problem` 400 for no such page."""
    found: list[AuditLine] = []
    scanned, last = 0, None
    most = PAGE + 1 if fits is None else MOST_SCANNED
    async for line in store.audit(tenant=tenant, newest_first=True, after=cursor_of(after), limit=most):
        scanned += 1
        if fits is None or fits(line):
            if len(found) == PAGE:
                return Found(tuple(found), last)
            found.append(line)
        last = line.sequence
    return Found(tuple(found), last if scanned == most else None)


def cursor_of(text: str | None) -> int | None:
    """Read where a page begins. Raises `Problem` 400."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400, "There is no such page")
    return int(text)


def line_json(line: AuditLine) -> dict[str, Any]:
    """Return all of a line under its own names: what its hash is made of, and the hash."""
    return {name: getattr(line, name) for name in _FIELDS}


async def lines_text(lines: Sequence[AuditLine]) -> str:
    """Return each as one line of ASCII JSON, whatever it holds. Made off the event loop, too."""
    return await run_check(LARGE_CHARACTERS, lambda: "".join(map(_line_text, lines)))


def _line_text(line: AuditLine) -> str:
    return json.dumps(line_json(line), separators=(",", ":"), default=repr) + "\n"


@dataclass(frozen=True, slots=True)
class Told:
    """One line for a page: all of it is text to be shown as such, but ``when``, ``diff`` and ``details``.

    ``words`` is what happened, ``said`` what was decided, in the words of cards.
    """

    sequence: str
    when: Markup
    kind: str
    words: str
    actor: str
    tenant: str
    address: str
    record_id: str
    has_page: bool
    tool: str
    said: str
    reason: Cut | None
    diff: tuple[DiffLine, ...]
    details: Cut | None


async def told(lines: Sequence[AuditLine]) -> list[Told]:
    """Return lines for a page, made off the event loop: nobody knows how much is in them."""
    return await run_check(LARGE_CHARACTERS, lambda: [_told(line) for line in lines])


def _told(line: AuditLine) -> Told:
    more = {name: getattr(line, name) for name in _FIELDS if name not in _SHOWN_APART | _PROOF}
    said = {name: value for name, value in more.items() if value not in (None, "", (), {})}
    if line.details:
        said["details"] = line.details
    if line.diff:
        said["diff"] = list(line.diff)
    kind = _text(line.kind)
    decided = told_words(_text(line.decision) or kind)
    return Told(
        sequence=_text(line.sequence),
        when=moment(line.at_ms) if type(line.at_ms) is int else Markup(),
        kind=kind,
        words=decided.capitalize() if kind == "decided" else KIND_WORDS.get(kind, kind),
        actor=_text(line.actor),
        tenant=_text(line.tenant),
        address=_text(line.address),
        record_id=_text(line.record_id),
        has_page=_NAME.fullmatch(_text(line.record_id)) is not None,
        tool=_text(line.tool_name) or ", ".join(_asked_tools(line)),
        said=decided,
        reason=cut(_text(line.reason)) if line.reason else None,
        diff=tuple(told_diff([one for one in line.diff if isinstance(cast("Any", one), Mapping)])),
        details=cut(json.loads(json.dumps(said, default=repr))) if said else None,
    )


def _asked_tools(line: AuditLine) -> list[str]:
    """Return the tools that a pause asked about, as far as its line has them."""
    details: Any = line.details
    requests: Any = cast("Mapping[str, Any]", details).get("requests") if isinstance(details, Mapping) else None
    asked = cast("list[Any]", requests)[:_TOOLS_SHOWN] if isinstance(requests, list) else []
    return [_text(cast("dict[str, Any]", one).get("tool")) for one in asked if isinstance(one, dict)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else repr(value)[:200]


_log = logging.getLogger("codemode.console")
VERIFY_SECONDS = 60.0
MOST_EXPORTS = 4
MOST_EXPORTS_OF_USER = 2
_VERIFY = "audit/verify"
_LINES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a check: ``words`` for people; ``is_whole`` None where there was no end to it."""

    is_whole: bool | None
    words: str
    sequence: int | None = None
    reason: str | None = None


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the routes of ``/audit``, of checking it and of a copy."""
    checks, exports = _Checks(desk), _Exports(desk)

    async def audit(request: Request) -> Response:
        return await _page(desk, request, None)

    async def verify(request: Request) -> Response:
        form, visit = await read_small_form(request), require_principal(request)
        try:
            visit.require_form_token(form.get(TOKEN_FIELD), _VERIFY)
        except Problem as problem:
            await audit_refusal(desk.store, visit, request, problem.message)
            raise
        return await _page(desk, request, await checks.check(form.get("head", "").strip()))

    return [
        Route("/audit", audit, methods=["GET"]),
        Route("/audit/verify", verify, methods=["POST"]),
        Route("/audit/export", exports.export, methods=["GET"]),
    ]


async def _page(desk: ConsoleContext, request: Request, checked: Checked | None) -> Response:
    visit = require_principal(request)
    asked = {name: request.query_params.get(name, "").strip() for name in ("tenant", "kind", "actor", "record")}

    sought = {**asked, "kind": _KINDS.get(asked["kind"], asked["kind"])}

    def fits(line: AuditLine) -> bool:
        pairs = (("kind", line.kind), ("actor", line.actor), ("record", line.record_id))
        return all(sought[name] in ("", value) for name, value in pairs)

    kept = {name: value for name, value in asked.items() if value}
    tenants = visible_tenants(visit.user, asked["tenant"])
    found = await find(desk.store, tenants, request.query_params.get("after"), fits if kept else None)
    token = visit.form_token(_VERIFY)
    if wants_json(request):
        said = None if checked is None else {"isWhole": checked.is_whole, "message": checked.words}
        if said is not None and checked is not None:
            said |= {"sequence": checked.sequence, "reason": checked.reason}
        lines = [line_json(one) for one in found.lines]
        return JSONResponse({"lines": lines, "next": found.next, "checked": said, "formToken": token})
    following = None if found.next is None else urlencode({**kept, "after": found.next})
    context: dict[str, Any] = {"asked": asked, "checked": checked, "token": token, "following": following}
    context |= {"most_scanned": MOST_SCANNED, "kinds": KIND_WORDS.values()}
    return page(request, "audit.html", lines=await told(found.lines), **context)


class _Checks:
    """Whether the audit is as it was written: one check at a time, against the head of the last that it passed."""

    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._is_busy = False
        self._head: str | None = None

    async def check(self, given: str) -> Checked:
        """Read all lines, for at most `VERIFY_SECONDS`. Raises `Problem` 429 while another check goes on."""
        if self._is_busy:
            raise Problem(429, "The audit is being checked", "Try again in a moment.", headers={"Retry-After": "5"})
        self._is_busy = True
        try:
            async with asyncio.timeout(VERIFY_SECONDS):
                return await self._checked(given)
        except TimeoutError:
            words = f"There are too many lines to check here: it was given up after {VERIFY_SECONDS:.0f} seconds."
            return Checked(None, f"{words} Check it with verify_audit, on a machine of its own.")
        finally:
            self._is_busy = False

    async def _checked(self, given: str) -> Checked:
        store = self._desk.store
        head = await store.audit_head()
        try:
            bad = await verify_audit(store, given or self._head)
        except ValueError:
            raise Problem(400, "This is no head of an audit", "It is the text that this page shows.") from None
        if bad is None:
            self._head = head
            return Checked(True, f"All lines are as they were written. Head: {head}")
        what = {"changed": "was changed", "missing": "is missing", "rewritten": "is not the one that there was"}
        words = f"Line {bad.sequence} {what[bad.reason]}. What stands from there on proves nothing."
        return Checked(False, words, bad.sequence, bad.reason)


class _Exports:
    """Copies of all lines that somebody may see: in the audit themselves, and few at a time."""

    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._of_users: Counter[str] = Counter()

    async def export(self, request: Request) -> Response:
        """Send all lines. It is noted before the first of them is read."""
        visit = require_principal(request)
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Problem(403, "This was not sent from a page of the console", "Take the copy there.")
        place = ExitStack()
        place.enter_context(self._place(visit.user.name))
        try:
            if request.method == "GET":
                by: dict[str, Any] = {"actor": visit.user.name, "address": visit.address}
                await self._desk.store.note("audit_exported", tenant=audit_tenant(visit.user), **by)
        except BaseException:
            place.close()
            raise
        return _Export(self._lines(visit), place)

    @contextmanager
    def _place(self, name: str) -> Generator[None]:
        if self._of_users[name] >= MOST_EXPORTS_OF_USER or self._of_users.total() >= MOST_EXPORTS:
            raise Problem(429, "Too many copies are being taken", "Wait for one.", headers={"Retry-After": "30"})
        self._of_users[name] += 1
        try:
            yield
        finally:
            self._of_users -= Counter([name])

    async def _lines(self, visit: Principal) -> AsyncGenerator[bytes]:
        found = self._desk.store.audit(tenant=visible_tenants(visit.user, ""))
        async with aclosing(found) as lines:
            batch: list[AuditLine] = []
            async for line in lines:
                batch.append(line)
                if len(batch) == _LINES_AT_ONCE:
                    yield (await lines_text(batch)).encode()
                    batch = []
            if batch:
                yield (await lines_text(batch)).encode()


class _Export(StreamingResponse):
    """A copy that is sent as it is read, and holds its place until it has ended or nobody takes it any more."""

    def __init__(self, lines: AsyncGenerator[bytes], place: ExitStack) -> None:
        headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
        super().__init__(lines, headers=headers, media_type="application/x-ndjson")
        self._lines, self._place = lines, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            try:
                if scope["method"] == "HEAD":
                    await Response(headers=dict(self.headers))(scope, receive, send)
                else:
                    await super().__call__(scope, receive, send)
            except CodeModeError:
                # What is sent has no end then: whoever takes the copy sees that there is more.
                _log.warning("a copy of the audit was broken off", exc_info=True)
            finally:
                await self._lines.aclose()


def history_routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the route of ``/history``."""

    async def history(request: Request) -> Response:
        asked = {name: request.query_params.get(name, "").strip() for name in ("tenant", "tool", "actor")}

        def fits(line: AuditLine) -> bool:
            if line.kind not in DECISIONS:
                return False
            return asked["tool"] in ("", line.tool_name) and asked["actor"] in ("", line.actor)

        tenants = visible_tenants(require_principal(request).user, asked["tenant"])
        found = await find(desk.store, tenants, request.query_params.get("after"), fits)
        if wants_json(request):
            return JSONResponse({"decisions": [line_json(one) for one in found.lines], "next": found.next})
        kept = {name: value for name, value in asked.items() if value}
        following = None if found.next is None else urlencode({**kept, "after": found.next})
        context: dict[str, Any] = {"asked": asked, "following": following, "most_scanned": MOST_SCANNED}
        return page(request, "history.html", lines=await told(found.lines), **context)

    return [Route("/history", history, methods=["GET"])]
