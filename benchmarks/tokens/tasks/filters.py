"""Much is read and little of it kept: filters, counts and a file that is written from what was read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any

from ..world.people import SERVICES
from .task import Direct, Task

_CLOSED = "repo:acme/shop is:issue is:closed closed:2026-10-01..2026-10-31"
_REPORT = "/srv/shop/reports/closed-2026-10.csv"
_LATENCY: dict[str, Any] = {"namespace": "Shop/HTTP", "metric_name": "p95-latency", "statistic": "Average"}
_DAY = {"start_time": "2026-11-19T00:00:00Z", "end_time": "2026-11-20T00:00:00Z"}


def _old_alarms() -> Direct:
    [alarms] = yield [("cloudwatch_get_active_alarms", {"max_items": 200})]
    found = [
        [one["alarm_name"], one["state_updated_timestamp"]]
        for one in alarms["metric_alarms"]
        if one["alarm_name"].startswith("payments-") and one["state_updated_timestamp"] < "2026-11-15"
    ]
    return sorted(found, key=lambda one: one[1])


def _closing_times() -> Direct:
    [found] = yield [("github_search_issues", {"q": f"{_CLOSED} label:bug", "per_page": 100})]
    days = sorted(([_days(one), one["number"]] for one in found["items"]), reverse=True)
    middle = sorted(one[0] for one in days)[len(days) // 2]
    return {"count": len(days), "median": middle, "slowest": days[:3]}


def _days(issue: dict[str, Any]) -> float:
    opened, closed = (datetime.fromisoformat(issue[name]) for name in ("created_at", "closed_at"))
    return floor((closed - opened) / timedelta(days=1) * 10 + 0.5) / 10


def _written() -> Direct:
    [found] = yield [("github_search_issues", {"q": _CLOSED, "per_page": 100})]
    lines = ["number,title,labels,opened,closed"]
    for one in found["items"]:
        labels = " ".join(label["name"] for label in one["labels"])
        lines.append(f"{one['number']},{one['title']},{labels},{one['created_at'][:10]},{one['closed_at'][:10]}")
    content = "\n".join(lines) + "\n"
    yield [("filesystem_write_file", {"path": _REPORT, "content": content})]
    return {"issues": len(lines) - 1, "characters": len(content)}


def _weeks() -> Direct:
    query = "repo:acme/shop is:issue created:>=2026-10-26"
    [found] = yield [("github_search_issues", {"q": query, "per_page": 100})]
    weeks: dict[str, dict[str, int]] = {}
    for one in found["items"]:
        passed = datetime.fromisoformat(one["created_at"]) - datetime(2026, 10, 26, tzinfo=UTC)
        week = weeks.setdefault(str(passed.days // 7 + 1), {})
        for label in one["labels"]:
            week[label["name"]] = week.get(label["name"], 0) + 1
    return weeks


def _worst() -> Direct:
    queries = [
        {
            "id": f"m{at}",
            "label": one,
            "metric_stat": {**_LATENCY, "dimensions": [{"name": "ServiceName", "value": one}]},
        }
        for at, one in enumerate(SERVICES)
    ]
    [data] = yield [("cloudwatch_get_metric_data", {**_DAY, "queries": queries})]
    return [_peak(one) for one in data["metricDataResults"]]


def _peak(series: dict[str, Any]) -> list[Any]:
    worst = max(series["datapoints"], key=lambda one: one["value"])
    return [series["label"], worst["timestamp"][11:16], floor(worst["value"] + 0.5)]


def _days_open(taken: str) -> str:
    return f"""\
const {taken} = await tools.github_search_issues({{ q: "{_CLOSED} label:bug", per_page: 100 }});
const open = (issue) => Math.round((Date.parse(issue.closed_at) - Date.parse(issue.created_at)) / 8640000) / 10;
const days = issues
  .map((issue) => [open(issue), issue.number])
  .sort((a, b) => b[0] - a[0]);
return {{ count: days.length, median: days[Math.floor((days.length - 1) / 2)][0], slowest: days.slice(0, 3) }};"""


def _weekly(weeks: Any) -> str:
    lines = (", ".join(f"{name} {count}" for name, count in sorted(weeks[week].items())) for week in sorted(weeks))
    return "\n".join(f"Week {at}: {line}" for at, line in enumerate(lines, 1))


TASKS = [
    Task(
        name="old alarms",
        question="Which active alarms of the payments-... services were last updated before 2026-11-15? Oldest first.",
        direct=_old_alarms,
        programs=[
            """\
const { metric_alarms = [] } = await tools.cloudwatch_get_active_alarms({ max_items: 200 });
return metric_alarms
  .filter((alarm) => alarm.alarm_name.startsWith("payments-") && alarm.state_updated_timestamp < "2026-11-15")
  .map((alarm) => [alarm.alarm_name, alarm.state_updated_timestamp])
  .sort((a, b) => a[1].localeCompare(b[1]));"""
        ],
        searches=[["list active CloudWatch alarms"]],
        answer=lambda found: "\n".join(f"{name}, since {since}" for name, since in found),
    ),
    Task(
        name="how long bugs were open",
        question=(
            "Bugs (label bug) of acme/shop that were closed in October 2026: how many, how many days was the median "
            "one open, and which three took longest?"
        ),
        direct=_closing_times,
        programs=[
            _days_open("issues"),
            _days_open("{ items: issues }"),
        ],
        searches=[["search GitHub issues"]],
        answer=lambda data: (
            f"{data['count']} bugs, open for {data['median']} days in the median. Longest: "
            + ", ".join(f"{number} ({days} days)" for days, number in data["slowest"])
        ),
    ),
    Task(
        name="issues written to a file",
        question=(
            f"Write all issues of acme/shop that were closed in October 2026 to {_REPORT}, newest first, with the "
            "columns number,title,labels,opened,closed: labels with spaces between them, days as YYYY-MM-DD."
        ),
        direct=_written,
        programs=[
            f"""\
const {{ items }} = await tools.github_search_issues({{ q: "{_CLOSED}", per_page: 100 }});
const lines = items.map((issue) => [
  issue.number,
  issue.title,
  issue.labels.map((label) => label.name).join(" "),
  issue.created_at.slice(0, 10),
  issue.closed_at.slice(0, 10),
].join(","));
const content = ["number,title,labels,opened,closed", ...lines].join("\\n") + "\\n";
await tools.filesystem_write_file({{ path: "{_REPORT}", content }});
return {{ issues: lines.length, characters: content.length }};"""
        ],
        searches=[["search GitHub issues", "write a text file"]],
        answer=lambda data: f"{data['issues']} issues are in {_REPORT}.",
    ),
    Task(
        name="issues by week and label",
        question=(
            "How many issues of acme/shop were opened in each week since Monday, 2026-10-26, by label? Number the "
            "weeks from 1; one with two labels counts for both."
        ),
        direct=_weeks,
        programs=[
            """\
const { items } = await tools.github_search_issues({
  q: "repo:acme/shop is:issue created:>=2026-10-26",
  per_page: 100,
});
const start = Date.parse("2026-10-26T00:00:00Z");
const weeks = {};
items.forEach((issue) => {
  const week = Math.floor((Date.parse(issue.created_at) - start) / (7 * 24 * 3600 * 1000)) + 1;
  weeks[week] ??= {};
  issue.labels.forEach(({ name }) => { weeks[week][name] = (weeks[week][name] ?? 0) + 1; });
});
return weeks;"""
        ],
        searches=[["search GitHub issues"]],
        answer=_weekly,
    ),
    Task(
        name="twelve series of a metric",
        question=(
            "When was the p95-latency (namespace Shop/HTTP, dimension ServiceName) of each of these services highest "
            f"on 2026-11-19, and how high? {', '.join(SERVICES)}"
        ),
        direct=_worst,
        programs=[
            f"""\
const services = {list(SERVICES)!r};
const queries = services.map((service, at) => ({{
  id: `m${{at}}`,
  label: service,
  metric_stat: {{
    namespace: "Shop/HTTP",
    metric_name: "p95-latency",
    statistic: "Average",
    dimensions: [{{ name: "ServiceName", value: service }}],
  }},
}}));
const data = await tools.cloudwatch_get_metric_data({{
  start_time: "2026-11-19T00:00:00Z",
  end_time: "2026-11-20T00:00:00Z",
  queries,
}});
return data.metricDataResults.map((series) => {{
  const worst = series.datapoints.reduce((a, b) => (b.value > a.value ? b : a));
  return [series.label, worst.timestamp.slice(11, 16), Math.round(worst.value)];
}});"""
        ],
        searches=[["get data of a CloudWatch metric"]],
        answer=lambda found: "\n".join(f"{name}: {value} at {time}" for name, time, value in found),
    ),
]
