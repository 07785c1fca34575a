"""The list: what waits, by tenant, app, tool, label and state, and how many requests wait for each tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import Page, Record
from codemode.plugins import APPROVAL_KIND, LARGE_CHARACTERS, run_check

from ..decisions import ABOUT_CHOICE, MOST_AT_ONCE, chosen_text
from ..errors import Problem
from ..rendering import page, wants_json
from ..visible import is_visible, visible_text
from ..visits import chosen_tenants, visit_of
from .desk import Desk, record_json

_LISTED = 50
_ORDERS = {"newest": "Newest first", "expiring": "Soonest to expire first"}
_STATES = {
    "waiting": "Waiting for somebody",
    "pending": "Pending, decided ones too",
    "resuming": "Being resumed",
    "resting": "Resting",
    "lost": "Lost",
    "completed": "Completed",
    "failed": "Failed",
    "expired": "Expired",
    "withdrawn": "Withdrawn",
    "all": "All but resting",
}
_MOST_WAITING = 10
_MOST_LABELS = 10


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the route of the list."""

    async def listing(request: Request) -> Response:
        asked = _asked_of(request)
        tenants = chosen_tenants(visit_of(request).user, asked.tenant)
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
        return await run_check(LARGE_CHARACTERS, lambda: _page(request, asked, found, counts, tool))

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


def _page(request: Request, asked: _Asked, found: Page, counts: Mapping[str, int], tool: str) -> Response:
    visit = visit_of(request)
    is_open = asked.state in ("waiting", "pending") and visit.user.may_decide
    shown: dict[str, Any] = {
        "rows": [_row(one, tool, is_open=is_open) for one in found.records],
        "asked": asked,
        "tool": tool,
        "states": _STATES,
        "orders": _ORDERS,
        "counts": [{"tool": one, "count": count, "query": asked.query(tool=one)} for one, count in counts.items()],
        "decided": asked.query(state="pending", order=""),
        "lost": asked.query(state="lost", order=""),
        "every_tool": asked.query(tool=""),
        "following": None if found.next is None else asked.query(after=found.next),
        "chosen": asked.query(select="all", after=asked.after),
        "longer": asked.query(limit=MOST_AT_ONCE),
        "is_longest": asked.limit == MOST_AT_ONCE,
        "may_choose": is_open and any(one.state == "waiting" for record in found.records for one in record.requests),
        "choice_token": visit.form_token(ABOUT_CHOICE),
        "most": MOST_AT_ONCE,
    }
    return page(request, "list.html", **shown)


def _row(record: Record, tool: str, *, is_open: bool) -> dict[str, Any]:
    waiting = [one for one in record.requests if one.state == "waiting" and tool in ("", one.tool_name)]
    kept = waiting[: MOST_AT_ONCE if tool else _MOST_WAITING]
    labels = list(record.labels.items())
    return {
        "record": record,
        "waiting": [
            {
                "tool": one.tool_name,
                "choice": chosen_text(record.id, one.interrupt_id) if is_open and one.kind == APPROVAL_KIND else None,
                "input": one.input if number < _MOST_WAITING else None,
            }
            for number, one in enumerate(kept)
        ],
        "more": len(waiting) - len(kept),
        "labels": labels[:_MOST_LABELS],
        "more_labels": max(0, len(labels) - _MOST_LABELS),
    }
