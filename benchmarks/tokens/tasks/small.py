"""Single small calls, a query that does all the work, and pages that have to be read: programs gain nothing here."""

from __future__ import annotations

import re
from typing import Any

from .task import Direct, Task

_ISSUE: dict[str, Any] = {"owner": "acme", "repo": "shop", "issue_number": 1180}
_COMMENT = "Reproduced on staging with 45 lines. The fix goes out on Tuesday."
_REVENUE = (
    "SELECT c.plan, COUNT(*) AS orders, SUM(o.total_cents) AS cents FROM orders o JOIN customers c "
    "ON c.id = o.customer_id WHERE o.status = 'paid' AND o.ordered_at >= '2026-10-01' "
    "AND o.ordered_at < '2026-11-01' GROUP BY c.plan"
)
_COUPONS = "https://admin.acme.example/coupons"
_FIELDS = [
    {"name": "Code", "target": "e41", "type": "textbox", "value": "WINTER15"},
    {"name": "Percent", "target": "e43", "type": "textbox", "value": "15"},
    {"name": "Valid until", "target": "e45", "type": "textbox", "value": "2026-12-31"},
]


def _convert() -> Direct:
    given = {"source_timezone": "Europe/Berlin", "time": "09:30", "target_timezone": "Asia/Tokyo"}
    [converted] = yield [("time_convert_time", given)]
    return converted["target"]["datetime"]


def _assignee() -> Direct:
    [issue] = yield [("github_get_issue", _ISSUE)]
    return issue["assignee"]["login"]


def _comment() -> Direct:
    [comment] = yield [("github_add_issue_comment", {**_ISSUE, "body": _COMMENT})]
    return comment["html_url"]


def _head() -> Direct:
    [file] = yield [("filesystem_read_text_file", {"path": "/srv/shop/CHANGELOG.md", "head": 12})]
    return file["content"]


def _revenue() -> Direct:
    [rows] = yield [("sqlite_read_query", {"query": _REVENUE})]
    return rows


def _coupon() -> Direct:
    yield [("playwright_browser_navigate", {"url": _COUPONS})]
    yield [("playwright_browser_click", {"element": "New coupon link", "target": "e31"})]
    [_, made] = yield [
        ("playwright_browser_fill_form", {"fields": _FIELDS}),
        ("playwright_browser_click", {"element": "Create button", "target": "e47"}),
    ]
    return made


def _first_release(text: str) -> tuple[str, list[str]]:
    release = text.split("\n## ")[1]
    return release.split()[0], re.findall(r"^- (.+)", release, re.MULTILINE)


TASKS = [
    Task(
        name="a time in another zone",
        question="A call is at 09:30 in Berlin today. What time is that in Tokyo?",
        direct=_convert,
        programs=[
            """\
const { target } = await tools.time_convert_time({
  source_timezone: "Europe/Berlin",
  time: "09:30",
  target_timezone: "Asia/Tokyo",
});
return target.datetime;"""
        ],
        searches=[["convert a time between time zones"]],
        read=lambda text: text[11:16],
        answer="09:30 in Berlin is {} in Tokyo.".format,
    ),
    Task(
        name="who has an issue",
        question="Who is issue 1180 of acme/shop assigned to?",
        direct=_assignee,
        programs=[
            """\
const issue = await tools.github_get_issue({ owner: "acme", repo: "shop", issue_number: 1180 });
return issue.assignee?.login ?? null;"""
        ],
        searches=[["get an issue of a GitHub repository"]],
        answer="Issue 1180 is assigned to {}.".format,
    ),
    Task(
        name="a comment",
        question=f'Comment on issue 1180 of acme/shop: "{_COMMENT}"',
        direct=_comment,
        programs=[
            f"""\
const comment = await tools.github_add_issue_comment({{
  owner: "acme",
  repo: "shop",
  issue_number: 1180,
  body: "{_COMMENT}",
}});
return comment.html_url;"""
        ],
        searches=[["comment on a GitHub issue"]],
        answer="Done: {}".format,
    ),
    Task(
        name="the head of a file",
        question="What changed in the newest release in /srv/shop/CHANGELOG.md? The newest is at the top.",
        direct=_head,
        programs=[
            """\
const file = await tools.filesystem_read_text_file({ path: "/srv/shop/CHANGELOG.md", head: 12 });
return file.content;"""
        ],
        searches=[["read the first lines of a text file"]],
        read=_first_release,
        answer=lambda release: f"{release[0]} is the newest. It says: {' '.join(release[1])}",
    ),
    Task(
        name="one SQL query",
        question=(
            "What did paid orders bring in October 2026, by plan? The database has orders(customer_id, ordered_at, "
            "total_cents, status) and customers(id, plan); dates are ISO 8601, paid orders have the status 'paid'."
        ),
        direct=_revenue,
        programs=[
            f"""\
return await tools.sqlite_read_query({{
  query: "{_REVENUE}",
}});"""
        ],
        searches=[["run a SELECT query on the database"]],
        answer=lambda rows: " ".join(f"{one['plan']}: {one['cents'] / 100:.2f} from {one['orders']}." for one in rows),
    ),
    Task(
        name="a form in the browser",
        question=f"Make the coupon WINTER15 at {_COUPONS}: 15 percent, until 2026-12-31. What is its internal number?",
        direct=_coupon,
        programs=[
            f'return await tools.playwright_browser_navigate({{ url: "{_COUPONS}" }});',
            'return await tools.playwright_browser_click({ element: "New coupon link", target: "e31" });',
            """\
await tools.playwright_browser_fill_form({
  fields: [
    { name: "Code", target: "e41", type: "textbox", value: "WINTER15" },
    { name: "Percent", target: "e43", type: "textbox", value: "15" },
    { name: "Valid until", target: "e45", type: "textbox", value: "2026-12-31" },
  ],
});
return await tools.playwright_browser_click({ element: "Create button", target: "e47" });""",
        ],
        searches=[["open a web page", "click on a web page", "fill in a form"], ["navigate to a URL"]],
        read=lambda text: re.findall(r"CP-\d+", text)[0],
        answer="WINTER15 is active. Its internal number is {}.".format,
    ),
]
