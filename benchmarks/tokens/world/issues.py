"""Issues of one repository, each with the fields that the types of the published server name."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from typing import Any

from codemode import CodeModeToolError

from .people import LOGINS, NOW, SERVICES, before, node_id, seeded, text_of, user

REPOSITORY = "https://api.github.com/repos/acme/shop"
_PAGE = "https://github.com/acme/shop"
_FIRST, _COUNT, _DAYS = 1001, 480, 150
_LABELS = {
    "bug": ("d73a4a", "Something isn't working"),
    "feature": ("a2eeef", "New feature or request"),
    "docs": ("0075ca", "Improvements or additions to documentation"),
    "performance": ("fbca04", "Slower than it should be"),
    "customer": ("5319e7", "Reported by a customer"),
}
_WHAT = ("times out", "returns 500", "shows the wrong total", "drops the last line", "is slow", "repeats a message")
_WHEN = ("after a retry", "for carts with more than 40 lines", "when the currency changes", "on Safari", "at midnight")
_BODY = (
    "Seen in production, first on {day}. Steps: open a cart, change the quantity, go back, and pay.",
    "Expected: the total is the sum of all lines. Instead the {service} {what} {when}.",
    "The log says `upstream reset before headers` about forty times an hour; a restart helps for some minutes.",
    "It began with the release of the week before. The dashboard of {service} shows nothing else that is unusual.",
)


class Issues:
    """A repository's issues, in memory; comments are added to this world alone."""

    def __init__(self) -> None:
        numbers = seeded("issues")
        self._issues = [_issue(at, numbers) for at in range(_COUNT)]
        self._comments = 0

    def functions(self) -> dict[str, Any]:
        return {
            "github_list_issues": self._list,
            "github_search_issues": self._search_and_count_event,
            "github_get_issue": self._get_argument,
            "github_add_issue_comment": self._comment,
        }

    async def _list(self, given: dict[str, Any]) -> list[Any]:
        state, labels = given.get("state", "open"), set(given.get("labels") or ())
        fits = [
            one
            for one in self._newest_first()
            if state in ("all", one["state"])
            and labels <= {label["name"] for label in one["labels"]}
            and one["updated_at"] >= given.get("since", "")
        ]
        return _page(fits, given)

    async def _search_and_count_event(self, given: dict[str, Any]) -> dict[str, Any]:
        fits = [one for one in self._newest_first() if _is_meant(one, given["q"])]
        return {"total_count": len(fits), "incomplete_results": False, "items": _page(fits, given)}

    async def _get_argument(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._by_number(given["issue_number"])

    async def _comment(self, given: dict[str, Any]) -> dict[str, Any]:
        issue = self._by_number(given["issue_number"])
        self._comments += 1
        number = 2_400_000_000 + self._comments
        return {
            "url": f"{REPOSITORY}/issues/comments/{number}",
            "html_url": f"{issue['html_url']}#issuecomment-{number}",
            "issue_url": issue["url"],
            "id": number,
            "node_id": node_id(seeded("comment"), "IC"),
            "user": user("ada"),
            "created_at": text_of(NOW),
            "updated_at": text_of(NOW),
            "author_association": "MEMBER",
            "body": given["body"],
        }

    def _by_number(self, number: int) -> dict[str, Any]:
        if not _FIRST <= number < _FIRST + _COUNT:
            raise CodeModeToolError(f"Not Found: Resource not found: issue {number}")
        return self._issues[number - _FIRST]

    def _newest_first(self) -> list[dict[str, Any]]:
        return self._issues[::-1]


def _page(found: list[dict[str, Any]], given: dict[str, Any]) -> list[dict[str, Any]]:
    size, page = min(given.get("per_page", 30), 100), given.get("page", 1)
    return found[(page - 1) * size : page * size]


def _is_meant(issue: dict[str, Any], query: str) -> bool:
    """Tell whether an issue fits the qualifiers, and has all other words in its title or body."""
    text = f"{issue['title']} {issue['body']}".lower()
    return all(_fits(issue, word) if ":" in word else word.lower() in text for word in query.split())


def _fits(issue: dict[str, Any], qualifier: str) -> bool:
    name, _, value = qualifier.partition(":")
    match name:
        case "repo":
            return value == "acme/shop"
        case "is" | "state" | "type":
            return value in ("issue", issue["state"])
        case "label":
            return value in {label["name"] for label in issue["labels"]}
        case "no":
            return not issue[value]
        case "created" | "closed":
            return _is_within(issue[f"{name}_at"], value)
        case _:
            raise CodeModeToolError(f"Validation Failed: the qualifier {name!r} is not supported")


def _is_within(day: str | None, value: str) -> bool:
    if day is None:
        return False
    if span := re.fullmatch(r"(\S+)\.\.(\S+)", value):
        return span[1] <= day[:10] <= span[2]
    return day[:10] >= value.removeprefix(">=")


def _issue(at: int, numbers: random.Random) -> dict[str, Any]:
    number, opened = _FIRST + at, before(_DAYS - at * _DAYS / _COUNT)
    closed = _closed(opened, numbers)
    login, labels = numbers.choice(LOGINS), _labels_of(numbers)
    assigned = [user(numbers.choice(LOGINS))] if numbers.random() < 0.6 else []
    service, what, when = numbers.choice(SERVICES), numbers.choice(_WHAT), numbers.choice(_WHEN)
    said = [line.format(day=text_of(opened)[:10], service=service, what=what, when=when) for line in _BODY]
    body = " ".join(numbers.sample(said, numbers.randint(1, 3)))
    if "customer" in labels:
        body += f"\n\nCustomer: C-{1000 + numbers.randint(1, 80)}"
    url = f"{REPOSITORY}/issues/{number}"
    return {
        "url": url,
        "repository_url": REPOSITORY,
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "html_url": f"{_PAGE}/issues/{number}",
        "id": 2_650_000_000 + at * 7331,
        "node_id": node_id(numbers, "I"),
        "number": number,
        "title": f"{service} {what} {when}",
        "user": user(login),
        "labels": [label(name) for name in labels],
        "state": "closed" if closed else "open",
        "locked": False,
        "assignee": assigned[0] if assigned else None,
        "assignees": assigned,
        "milestone": None,
        "comments": numbers.randint(0, 9),
        "created_at": text_of(opened),
        "updated_at": text_of(closed or opened + timedelta(hours=30)),
        "closed_at": text_of(closed) if closed else None,
        "body": body,
    }


def _closed(opened: datetime, numbers: random.Random) -> datetime | None:
    closed = opened + timedelta(days=numbers.expovariate(1 / 14), hours=1)
    return closed if closed < NOW and numbers.random() < 0.85 else None


def _labels_of(numbers: random.Random) -> list[str]:
    kind = numbers.choices(["bug", "feature", "docs", "performance"], [6, 3, 1, 2])[0]
    return [kind, "customer"] if numbers.random() < 0.35 else [kind]


def label(name: str) -> dict[str, Any]:
    color, description = _LABELS[name]
    return {
        "id": 6_200_000_000 + list(_LABELS).index(name),
        "node_id": node_id(random.Random(name), "LA"),
        "url": f"{REPOSITORY}/labels/{name}",
        "name": name,
        "color": color,
        "default": name == "bug",
        "description": description,
    }
