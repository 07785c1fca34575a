"""The history: who has decided what, when, and what they changed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from codemode import AuditLine

from ..audit_lines import DECISIONS, MOST_SCANNED, find, line_json, told
from ..rendering import page, wants_json
from ..visits import chosen_tenants, visit_of
from .desk import Desk


def routes(desk: Desk) -> list[BaseRoute]:
    """Return the route of ``/history``."""

    async def history(request: Request) -> Response:
        asked = {name: request.query_params.get(name, "").strip() for name in ("tenant", "tool", "actor")}

        def fits(line: AuditLine) -> bool:
            if line.kind not in DECISIONS:
                return False
            return asked["tool"] in ("", line.tool_name) and asked["actor"] in ("", line.actor)

        tenants = chosen_tenants(visit_of(request).user, asked["tenant"])
        found = await find(desk.store, tenants, request.query_params.get("after"), fits)
        if wants_json(request):
            return JSONResponse({"decisions": [line_json(one) for one in found.lines], "next": found.next})
        kept = {name: value for name, value in asked.items() if value}
        following = None if found.next is None else urlencode({**kept, "after": found.next})
        context: dict[str, Any] = {"asked": asked, "following": following, "most_scanned": MOST_SCANNED}
        return page(request, "history.html", lines=await told(found.lines), **context)

    return [Route("/history", history, methods=["GET"])]
