"""The list: a row for each call that waits, found by tenant, app, tool, label and state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, Page, Record, StoredRequest, UnknownRequestError

from ..decisions import ABOUT_CHOICE, MOST_AT_ONCE, about, chosen_text, decision_words, version_of
from ..errors import Problem
from ..rendering import InputLine, input_line, page, wants_json
from ..visible import is_visible, visible_text
from ..visits import Principal, require_principal, standing_choices, visible_tenants
from .desk import ConsoleContext, record_json

_LISTED = 50
_ORDERS = {"newest": "Newest first", "expiring": "Soonest to expire first"}
_STATES = {
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
_MOST_WAITING = 10
_MOST_LABELS = 10


def routes(desk: ConsoleContext) -> list[BaseRoute]:
    """Return the route of the list."""

    async def listing(request: Request) -> Response:
        asked = _asked_of(request)
        tenants = visible_tenants(require_principal(request).user, asked.tenant)
        counts = await desk.store.counts(tenant=tenants, app=asked.app or None)
        tool = _meant(asked.tool, counts)
        try:
            found = await desk.store.list(
                tenant=tenants,
                app=asked.app or None,
                tool=tool or None,
                state=cast("Any", None if asked.state == "all" else asked.state),
                labels=asked.labels,
                order=cast("Any", asked.order),
                after=asked.after or None,
                limit=asked.limit,
            )
        except ValueError:
            raise Problem(400, "There is no such page", "Its cursor is of no list, or of another order.") from None
        if wants_json(request):
            return JSONResponse(_json(found, counts))
        done = await _done(desk, request)
        return await run_check(LARGE_CHARACTERS, lambda: _page(desk, request, asked, found, counts, tool, done))

    return [Route("/", listing, methods=["GET"])]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What somebody asks to be listed; "" is what nobody has said."""

    tenant: str
    app: str
    tool: str
    label: tuple[str, ...]
    state: str
    order: str
    after: str
    limit: int
    is_all_chosen: bool

    @property
    def labels(self) -> dict[str, str]:
        """The labels, by their names."""
        return {name: text for name, _, text in (one.partition("=") for one in self.label)}

    @property
    def is_filtered(self) -> bool:
        """Whether the list is of less than all that waits."""
        return bool(self.tenant or self.app or self.tool or self.label)

    def query(self, **changed: Any) -> str:
        """Return the query of a list of the same, but for what is changed."""
        defaults: dict[str, Any] = {"state": "waiting", "order": "newest", "limit": _LISTED}
        names = ("tenant", "app", "tool", "label", "state", "order", "limit")
        kept = {name: getattr(self, name) for name in names} | changed
        return urlencode({name: one for name, one in kept.items() if one and one != defaults.get(name)}, doseq=True)


def _asked_of(request: Request) -> _Asked:
    """Read the query. Raises `Problem` 400 for what is no list."""
    asked = request.query_params
    state, order, limit = asked.get("state") or "waiting", asked.get("order") or "newest", asked.get("limit") or "50"
    if state not in _STATES or order not in _ORDERS or (order == "expiring" and state != "waiting"):
        raise Problem(400, "There is no such list", "What expires first is said of what waits alone.")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_AT_ONCE):
        raise Problem(400, "There is no such list", f"A page has from 1 to {MOST_AT_ONCE} records.")
    label = tuple(dict.fromkeys(one for one in asked.getlist("label") if one))
    if len({one.partition("=")[0] for one in label}) < len(label):
        raise Problem(400, "There is no such list", "A label has one text: two were asked for.")
    if len(label) > _MOST_LABELS or any("=" not in one for one in label):
        most = f"Such as ?label=customer=ada, and {_MOST_LABELS} of them are the most."
        raise Problem(400, "A label is asked for as name=text", most)
    return _Asked(
        tenant=asked.get("tenant", ""),
        app=asked.get("app", ""),
        tool=asked.get("tool", ""),
        label=label,
        state=state,
        order=order,
        after=asked.get("after", ""),
        limit=int(limit),
        is_all_chosen=asked.get("select") == "all",
    )


def _meant(tool: str, counts: Mapping[str, int]) -> str:
    """Return the tool that is meant: a page shows escapes for what nobody sees, and is sent them back."""
    if tool in counts:
        return tool
    shown = (one for one in counts if not is_visible(one) and visible_text(one, one_line=True) == tool)
    return next(shown, tool)


def _json(found: Page, counts: Mapping[str, int]) -> dict[str, Any]:
    return {"records": [record_json(one) for one in found.records], "next": found.next, "counts": dict(counts)}


async def _done(desk: ConsoleContext, request: Request) -> dict[str, Any] | None:
    """Return the call that was just decided in the list, with what was decided; None where the address names none."""
    record_id, _, number = request.query_params.get("done", "").partition("/")
    if not (record_id and number.isascii() and number.isdigit() and len(number) < 6):
        return None
    try:
        record = await desk.store.record(record_id, tenant=ALL_TENANTS)
    except UnknownRequestError:
        return None
    if not require_principal(request).user.can_see(record.tenant) or not 1 <= int(number) <= len(record.requests):
        return None
    one = record.requests[int(number) - 1]
    return {"record": record, "one": one, "words": decision_words(one)} if one.state in ("decided", "applied") else None


def _page(
    desk: ConsoleContext, request: Request, asked: _Asked, found: Page, counts: Mapping[str, int], tool: str, done: Any
) -> Response:
    visit = require_principal(request)
    is_open = asked.state in ("waiting", "pending") and visit.user.may_decide
    rows = [row for record in found.records for row in _rows(desk, visit, record, tool, is_open=is_open)]
    choices = {row.one.tool_name for row in rows if row.one is not None and row.choice}
    shown: dict[str, Any] = {
        "rows": rows,
        "asked": asked,
        "tool": tool,
        "states": _STATES,
        "orders": _ORDERS,
        "counts": [{"tool": one, "count": count, "query": asked.query(tool=one)} for one, count in counts.items()],
        "pending": counts.get(tool, 0) if tool else sum(counts.values()),
        "decided": asked.query(state="pending", order=""),
        "lost": asked.query(state="lost", order=""),
        "every_tool": asked.query(tool=""),
        "following": None if found.next is None else asked.query(after=found.next),
        "chosen": asked.query(select="all", after=asked.after),
        "longer": asked.query(limit=MOST_AT_ONCE),
        "back": asked.query(after=asked.after),
        "is_longest": asked.limit == MOST_AT_ONCE,
        "may_choose": bool(choices),
        "may_choose_all": len(choices) == 1,
        "shows_tenants": len({record.tenant for record in found.records}) > 1,
        "choice_token": visit.form_token(ABOUT_CHOICE),
        "most": MOST_AT_ONCE,
        "done": done,
    }
    return page(request, "list.html", **shown)


@dataclass(frozen=True, slots=True)
class _Row:
    """One call in the list; ``one`` is None for a record that has asked nothing. ``more`` counts calls left out.

    ``line`` is its input, ``choice`` the value of its checkbox, and ``form`` what its own form sends: only where the
    row shows the whole input, and nothing else is to be read or chosen before somebody decides.
    """

    record: Record
    one: StoredRequest | None
    number: int = 0
    line: InputLine | None = None
    choice: str | None = None
    form: Mapping[str, str] | None = None
    more: int = 0

    @property
    def is_unknown_outcome(self) -> bool:
        """Whether somebody is to say how a call has ended."""
        return self.one is not None and self.one.state == "waiting" and self.one.kind == UNKNOWN_OUTCOME_KIND

    @property
    def verb(self) -> str:
        """What the link to its page says is to be done there."""
        if self.one is None or self.one.state != "waiting":
            return "Open"
        return {APPROVAL_KIND: "Review", UNKNOWN_OUTCOME_KIND: "Resolve"}.get(self.one.kind, "Answer")

    @property
    def fragment(self) -> str:
        """The place of its call within that page; nothing where the page has one call, and shows its heading."""
        return f"#request-{self.number}" if self.one is not None and len(self.record.requests) > 1 else ""

    @property
    def agent(self) -> str:
        """Which agent asks: the label that says so, else the app."""
        return self.record.labels.get("agent") or self.record.app

    @property
    def labels(self) -> list[tuple[str, str]]:
        """The other labels, as many as a row shows."""
        labels = [pair for pair in self.record.labels.items() if pair[0] not in ("agent", "link")]
        return labels[:_MOST_LABELS]

    @property
    def more_labels(self) -> int:
        """How many labels the row leaves out."""
        return max(0, len(self.record.labels.keys() - {"agent", "link"}) - _MOST_LABELS)


def _rows(desk: ConsoleContext, visit: Principal, record: Record, tool: str, *, is_open: bool) -> list[_Row]:
    numbered = list(enumerate(record.requests, 1))
    waiting = [pair for pair in numbered if pair[1].state == "waiting" and tool in ("", pair[1].tool_name)]
    if not waiting:  # listed for its state: by the last call that it has asked about
        return [_Row(record, one, number, input_line(one)) for number, one in numbered[-1:]] or [_Row(record, None)]
    kept = waiting[: MOST_AT_ONCE if tool else _MOST_WAITING]
    rows: list[_Row] = []
    for at, (number, one) in enumerate(kept):
        line, choice, form = input_line(one) if at < _MOST_WAITING else None, None, None
        if is_open and one.kind == APPROVAL_KIND:
            choice = chosen_text(record.id, one.interrupt_id)
            if (
                line is not None
                and line.is_whole
                and not one.refusal
                and not standing_choices(desk.standing_approvals, record, one)
            ):
                version, shown = version_of(record, one), desk.store.shown(one)
                token = visit.form_token(about(one.interrupt_id, version, shown))
                form = {"form_token": token, "version": version, "shown": shown}
        rows.append(_Row(record, one, number, line, choice, form))
    rows[-1] = replace(rows[-1], more=len(waiting) - len(kept))
    return rows
