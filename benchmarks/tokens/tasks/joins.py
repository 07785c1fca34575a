"""One thing against another, the same call for many, and calls that have to be made again."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from math import floor
from typing import Any

from codemode import CodeModeToolError

from ..world.people import SERVICES
from .task import Direct, Task

_REPOSITORY: dict[str, Any] = {"owner": "acme", "repo": "shop"}
_OPEN: dict[str, Any] = {**_REPOSITORY, "state": "open", "per_page": 100}
_COUNT = "/srv/shop/warehouse/count-2026-11-19.csv"
_SINCE = "2026-11-13T09:00:00Z"


def _unapproved() -> Direct:
    [pulls] = yield [("github_list_pull_requests", _OPEN)]
    old = [one for one in pulls if one["created_at"] < "2026-11-13"]
    reviews = yield [("github_get_pull_request_reviews", {**_REPOSITORY, "pull_number": one["number"]}) for one in old]
    pairs = zip(old, reviews, strict=True)
    return [[one["number"], one["title"]] for one, said in pairs if all(it["state"] != "APPROVED" for it in said)]


def _failing() -> Direct:
    [pulls] = yield [("github_list_pull_requests", _OPEN)]
    numbers = [one["number"] for one in pulls]
    statuses = yield [("github_get_pull_request_status", {**_REPOSITORY, "pull_number": one}) for one in numbers]
    failed: dict[str, list[int]] = {}
    for number, status in zip(numbers, statuses, strict=True):
        for check in status["statuses"]:
            if check["state"] == "failure":
                failed.setdefault(check["context"], []).append(number)
    return failed


def _enterprise() -> Direct:
    listed = {**_OPEN, "labels": ["customer"]}
    [issues, _] = yield [("github_list_issues", listed), ("sqlite_describe_table", {"table_name": "customers"})]
    query = "SELECT id, name FROM customers WHERE plan = 'enterprise'"
    [customers] = yield [("sqlite_read_query", {"query": query})]
    counted = Counter(found[0] for one in issues if (found := re.findall(r"Customer: (C-\d+)", one["body"])))
    return {one["name"]: counted[one["id"]] for one in customers if counted[one["id"]]}


def _differing() -> Direct:
    [file, _] = yield [
        ("filesystem_read_text_file", {"path": _COUNT}),
        ("sqlite_describe_table", {"table_name": "products"}),
    ]
    [products] = yield [("sqlite_read_query", {"query": "SELECT sku, on_hand FROM products"})]
    rows = (line.split(",") for line in file["content"].splitlines()[1:])
    counted = {sku: int(count) for sku, _, count, *_ in rows}
    pairs = [[one["sku"], counted[one["sku"]] - one["on_hand"]] for one in products]
    return [one for one in pairs if one[1]]


def _alarm_times() -> Direct:
    names = [f"{one}-p95-latency" for one in SERVICES]
    histories = dict.fromkeys(names)
    while missing := [name for name, found in histories.items() if found is None]:
        answers = yield [("cloudwatch_get_alarm_history", {"alarm_name": one, "start_time": _SINCE}) for one in missing]
        pairs = zip(missing, answers, strict=True)
        histories |= {name: one for name, one in pairs if not isinstance(one, CodeModeToolError)}
    return [[name, *_times(found["result"]["history_items"])] for name, found in histories.items() if found]


def _times(items: list[dict[str, Any]]) -> tuple[int, int]:
    """Return how often an alarm was on, and for how many minutes in all."""
    began, count, seconds = None, 0, 0.0
    for one in reversed(items):
        moment = datetime.fromisoformat(one["timestamp"])
        if one["new_state"] == "ALARM":
            began, count = moment, count + 1
        elif began:
            seconds += (moment - began) / timedelta(seconds=1)
    return count, floor(seconds / 60 + 0.5)


def _asking(how: str) -> str:
    return f"""\
const services = {list(SERVICES)!r};
{how}
return services.map((service, at) => {{
  const items = histories[at].result.history_items.toReversed();
  let began, count = 0, ms = 0;
  items.forEach((item) => {{
    if (item.new_state === "ALARM") {{ began = Date.parse(item.timestamp); count += 1; }}
    else if (began) ms += Date.parse(item.timestamp) - began;
  }});
  return [`${{service}}-p95-latency`, count, Math.round(ms / 60000)];
}});"""


_AT_ONCE = f"""\
const histories = await Promise.all(services.map((service) =>
  tools.cloudwatch_get_alarm_history({{ alarm_name: `${{service}}-p95-latency`, start_time: "{_SINCE}" }})));"""
_AGAIN = f"""\
const history = async (alarm_name, left = 3) => {{
  try {{
    return await tools.cloudwatch_get_alarm_history({{ alarm_name, start_time: "{_SINCE}" }});
  }} catch (error) {{
    if (left === 0) throw error;
    return history(alarm_name, left - 1);
  }}
}};
const histories = await Promise.all(services.map((service) => history(`${{service}}-p95-latency`)));"""

TASKS = [
    Task(
        name="pull requests nobody approved",
        question="Which open pull requests of acme/shop from before 2026-11-13 has nobody approved? With titles.",
        direct=_unapproved,
        programs=[
            """\
const repo = { owner: "acme", repo: "shop" };
const pulls = await tools.github_list_pull_requests({ ...repo, state: "open", per_page: 100 });
const old = pulls.filter((pull) => pull.created_at < "2026-11-13");
const reviews = await Promise.all(old.map((pull) =>
  tools.github_get_pull_request_reviews({ ...repo, pull_number: pull.number })));
return old
  .filter((pull, at) => !reviews[at].some((review) => review.state === "APPROVED"))
  .map((pull) => [pull.number, pull.title]);"""
        ],
        searches=[["list pull requests of a repository", "get the reviews of a pull request"]],
        answer=lambda found: "\n".join(f"{number}: {title}" for number, title in found),
    ),
    Task(
        name="checks that fail",
        question="Which checks fail on the open pull requests of acme/shop, and on which ones?",
        direct=_failing,
        programs=[
            """\
const repo = { owner: "acme", repo: "shop" };
const pulls = await tools.github_list_pull_requests({ ...repo, state: "open", per_page: 100 });
const statuses = await Promise.all(pulls.map((pull) =>
  tools.github_get_pull_request_status({ ...repo, pull_number: pull.number })));
const failed = {};
pulls.forEach((pull, at) => statuses[at].statuses
  .filter((check) => check.state === "failure")
  .forEach((check) => (failed[check.context] ??= []).push(pull.number)));
return failed;"""
        ],
        searches=[["list pull requests of a repository", "status checks of a pull request"]],
        answer=lambda failed: "\n".join(f"{name}: {', '.join(map(str, failed[name]))}" for name in sorted(failed)),
    ),
    Task(
        name="issues of enterprise customers",
        question=(
            "How many open issues of acme/shop with the label customer come from each customer of the plan enterprise? "
            "Issues name the customer's id in their text; the customers are in the database's table customers."
        ),
        direct=_enterprise,
        programs=[
            """\
const [columns, issues] = await Promise.all([
  tools.sqlite_describe_table({ table_name: "customers" }),
  tools.github_list_issues({ owner: "acme", repo: "shop", state: "open", labels: ["customer"], per_page: 2 }),
]);
return { columns: columns.map((column) => column.name), bodies: issues.map((issue) => issue.body) };""",
            """\
const [customers, issues] = await Promise.all([
  tools.sqlite_read_query({ query: "SELECT id, name FROM customers WHERE plan = 'enterprise'" }),
  tools.github_list_issues({ owner: "acme", repo: "shop", state: "open", labels: ["customer"], per_page: 100 }),
]);
const ids = issues.map((issue) => issue.body.match(/Customer: (C-\\d+)/)?.[1]);
const counted = customers.map(({ id, name }) => [name, ids.filter((one) => one === id).length]);
return Object.fromEntries(counted.filter(([, count]) => count > 0));""",
        ],
        searches=[["list issues of a GitHub repository", "describe a table of the database", "run a SELECT query"]],
        answer=lambda data: "\n".join(f"{name}: {data[name]}" for name in sorted(data)),
    ),
    Task(
        name="a count against the database",
        question=(
            f"Where does the count in {_COUNT} differ from the table products of the database, and by how much? "
            "The file's first line names its columns."
        ),
        direct=_differing,
        programs=[
            f"""\
const [file, columns] = await Promise.all([
  tools.filesystem_read_text_file({{ path: "{_COUNT}", head: 3 }}),
  tools.sqlite_describe_table({{ table_name: "products" }}),
]);
return {{ file: file.content, columns: columns.map((column) => column.name) }};""",
            f"""\
const [file, products] = await Promise.all([
  tools.filesystem_read_text_file({{ path: "{_COUNT}" }}),
  tools.sqlite_read_query({{ query: "SELECT sku, on_hand FROM products" }}),
]);
const rows = file.content.trim().split("\\n").slice(1).map((line) => line.split(","));
const counted = new Map(rows.map(([sku, , count]) => [sku, Number(count)]));
return products
  .map((product) => [product.sku, counted.get(product.sku) - product.on_hand])
  .filter(([, difference]) => difference !== 0);""",
        ],
        searches=[["read a text file", "describe a table of the database", "run a SELECT query"]],
        answer=lambda found: "\n".join(f"{sku}: {by:+}" for sku, by in found),
    ),
    Task(
        name="histories, some throttled",
        question=(
            "How often was the alarm SERVICE-p95-latency of each of these services on since 2026-11-13 09:00 UTC, and "
            f"for how many minutes in all? {', '.join(SERVICES)}"
        ),
        direct=_alarm_times,
        programs=[_asking(_AT_ONCE), _asking(_AGAIN)],
        searches=[["history of a CloudWatch alarm"]],
        answer=lambda found: "\n".join(f"{name}: {count} times, {minutes} minutes" for name, count, minutes in found),
    ),
]
