"""Look-ups of which each needs the one before, documents to be read, and a query that is not ready at once."""

from __future__ import annotations

import re
from typing import Any

from .task import Direct, Task

_DOCUMENTS = [f"/srv/shop/post-mortems/2026-{month}.md" for month in ("08", "09", "10")]
_ORDER = "SELECT c.id, c.name, c.manager FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.id = 50123"
_DECLINED: dict[str, Any] = {
    "log_group_names": ["/ecs/payments-api"],
    "start_time": "2026-11-19T00:00:00+00:00",
    "end_time": "2026-11-20T00:00:00+00:00",
    "query_string": (
        "filter event = 'payment_declined' | stats count(*) as declined, max(@timestamp) as lastSeen, "
        "latest(reason) as lastReason by customerId | sort declined desc"
    ),
    "limit": 1000,
}
_ASK = f"""\
return await tools.cloudwatch_execute_log_insights_query({{
  log_group_names: ["/ecs/payments-api"],
  start_time: "2026-11-19T00:00:00+00:00",
  end_time: "2026-11-20T00:00:00+00:00",
  query_string: "{_DECLINED["query_string"]}",
  limit: 1000,
}});"""
_QUERY = "3f1c0c52-6d2e-4a0f-9c1b-5f4e6a7b8c9d"
_LEADING = """\
const top = result.results.slice(0, 5).map((row) => ({ customer: row.customerId, declined: Number(row.declined) }));
return { status: result.status, customers: result.results.length, top };"""

_POLL = f"""\
let result;
for (let look = 0; look < 20; look++) {{
  ({{ result }} = await tools.cloudwatch_get_logs_insight_query_results({{ query_id: "{_QUERY}" }}));
  if (result.status !== "Running") break;
}}
{_LEADING}"""


def _customer() -> Direct:
    [[customer]] = yield [("sqlite_read_query", {"query": _ORDER})]
    query = f"repo:acme/shop is:issue is:open {customer['id']}"
    [found] = yield [("github_search_issues", {"q": query})]
    return {"manager": customer["manager"], "issues": [one["number"] for one in found["items"]]}


def _on_call() -> Direct:
    [service] = yield [("memory_search_nodes", {"query": "payments-worker"})]
    team = _end_of(service, "payments-worker", "is_owned_by")
    [opened] = yield [("memory_open_nodes", {"names": [team]})]
    person = _end_of(opened, team, "has_on_call")
    [found] = yield [("memory_open_nodes", {"names": [person]})]
    return found["entities"][0]


def _end_of(graph: dict[str, Any], start: str, kind: str) -> str:
    return next(one["to"] for one in graph["relations"] if (one["from"], one["relationType"]) == (start, kind))


def _post_mortems() -> Direct:
    [files] = yield [("filesystem_read_multiple_files", {"paths": _DOCUMENTS})]
    return files["content"]


def _declined() -> Direct:
    [begun] = yield [("cloudwatch_execute_log_insights_query", _DECLINED)]
    given = {"query_id": begun["result"]["queryId"]}
    status, rows = "Running", list[Any]()
    while status == "Running":
        [looked] = yield [("cloudwatch_get_logs_insight_query_results", given)]
        status, rows = looked["result"]["status"], looked["result"]["results"]
    top = [{"customer": one["customerId"], "declined": int(one["declined"])} for one in rows[:5]]
    return {"status": status, "customers": len(rows), "top": top}


def _summary(causes: list[str]) -> str:
    return (
        f"The causes were {'; '.join(causes)}. In all three the change had gone out two days before behind a flag and "
        "was switched on for everybody in the morning; the canary, which runs at night, saw nothing. Restarts hid the "
        "cause for a while, and a removed image slowed the rollback. Common actions: connections in the canary's "
        "checks, flags in release notes, images of ten releases, a rollback practised each quarter."
    )


def _called(person: Any) -> str:
    (number,) = (one.removeprefix("Phone ") for one in person["observations"] if one.startswith("Phone "))
    return f"{person['name']}, {number}."


def _told(declined: Any) -> str:
    top = ", ".join(f"{one['customer']} ({one['declined']})" for one in declined["top"])
    return f"{declined['customers']} customers had declined payments. Most: {top}."


TASKS = [
    Task(
        name="order, customer, issues",
        question=(
            "Who manages the customer of order 50123, and which open issues of acme/shop name that customer's id? The "
            "database has orders(id, customer_id) and customers(id, name, manager)."
        ),
        direct=_customer,
        programs=[
            f"""\
const [customer] = await tools.sqlite_read_query({{
  query: "{_ORDER}",
}});
const found = await tools.github_search_issues({{ q: `repo:acme/shop is:issue is:open ${{customer.id}}` }});
return {{ manager: customer.manager, issues: found.items.map((issue) => issue.number) }};"""
        ],
        searches=[["run a SELECT query on the database", "search GitHub issues"]],
        answer=lambda data: f"{data['manager']}. Open issues: {', '.join(map(str, data['issues']))}.",
    ),
    Task(
        name="who is called at night",
        question="Who is called at night about payments-worker, and at which number? The knowledge graph has it.",
        direct=_on_call,
        programs=[
            """\
const found = await tools.memory_search_nodes({ query: "payments-worker" });
const names = [...new Set(found.relations.flatMap((relation) => [relation.from, relation.to]))];
return await tools.memory_open_nodes({ names });""",
            """\
const { entities } = await tools.memory_open_nodes({ names: ["dewi"] });
return entities[0];""",
        ],
        searches=[["search the knowledge graph", "open nodes of the knowledge graph by name"]],
        answer=_called,
    ),
    Task(
        name="three post-mortems",
        question=f"What do these post-mortems have in common? {', '.join(_DOCUMENTS)}",
        direct=_post_mortems,
        programs=[
            """\
const paths = ["08", "09", "10"].map((month) => `/srv/shop/post-mortems/2026-${month}.md`);
const files = await tools.filesystem_read_multiple_files({ paths });
return files.content;"""
        ],
        searches=[["read several files at once"]],
        read=lambda text: re.findall(r"The cause was (.+?)\.", text),
        answer=_summary,
    ),
    Task(
        name="logs, polled",
        question=(
            "How many customers had declined payments (event 'payment_declined', fields customerId and reason) on "
            "2026-11-19 in the log group /ecs/payments-api? Name the five with most."
        ),
        direct=_declined,
        programs=[
            _ASK,
            _POLL,
        ],
        # Loops are refused there, which its description says: habit is stronger, the first time.
        scripts=[
            _ASK,
            _POLL,
            f"""\
const look = async (left) => {{
  const {{ result }} = await tools.cloudwatch_get_logs_insight_query_results({{ query_id: "{_QUERY}" }});
  return result.status === "Running" && left > 0 ? look(left - 1) : result;
}};
const result = await look(20);
{_LEADING}""",
        ],
        searches=[["run a CloudWatch Logs Insights query", "get results of a logs query"]],
        answer=_told,
    ),
]
