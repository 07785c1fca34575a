"""Open pull requests of the repository, their reviews and the checks of their last commits."""

from __future__ import annotations

import random
from typing import Any

from codemode import CodeModeToolError

from .issues import REPOSITORY, label
from .people import LOGINS, SERVICES, before, node_id, seeded, sha, text_of, user

_FIRST, _COUNT = 2101, 24
_PAGE = "https://github.com/acme/shop"
_CHECKS = ("build", "lint", "unit", "integration", "browser", "types", "licences", "docs", "image", "preview")
_VERBS = ("Retry", "Cache", "Split", "Log", "Validate", "Move")
_THINGS = ("the card form", "totals", "stock reads", "the mail queue", "session cookies", "price rounding")


class PullRequests:
    """Two dozen open pull requests."""

    def __init__(self) -> None:
        numbers = seeded("pull requests")
        self._pulls = [_pull(at, numbers) for at in range(_COUNT)]
        self._reviews = {one["number"]: _reviews(one, numbers) for one in self._pulls}
        self._statuses = {one["number"]: _status(one, numbers) for one in self._pulls}

    def functions(self) -> dict[str, Any]:
        return {
            "github_list_pull_requests": self._list,
            "github_get_pull_request_reviews": self._reviews_of,
            "github_get_pull_request_status": self._status_of,
        }

    async def _list(self, given: dict[str, Any]) -> list[Any]:
        size, page = min(given.get("per_page", 30), 100), given.get("page", 1)
        found = self._pulls if given.get("state", "open") != "closed" else []
        return found[::-1][(page - 1) * size : page * size]

    async def _reviews_of(self, given: dict[str, Any]) -> list[Any]:
        return self._of(self._reviews, given["pull_number"])

    async def _status_of(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._of(self._statuses, given["pull_number"])

    @staticmethod
    def _of(known: dict[int, Any], number: int) -> Any:
        if number not in known:
            raise CodeModeToolError(f"Not Found: Resource not found: pull request {number}")
        return known[number]


def _pull(at: int, numbers: random.Random) -> dict[str, Any]:
    number, opened = _FIRST + at, before((_COUNT - at) * 0.9)
    login = numbers.choice(LOGINS)
    url, page = f"{REPOSITORY}/pulls/{number}", f"{_PAGE}/pull/{number}"
    branch = f"{login}/{numbers.choice(SERVICES)}-{number}"
    return {
        "url": url,
        "id": 1_980_000_000 + at * 6113,
        "node_id": node_id(numbers, "PR"),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": f"{REPOSITORY}/issues/{number}",
        "number": number,
        "state": "open",
        "locked": False,
        "title": f"{numbers.choice(_VERBS)} {numbers.choice(_THINGS)}",
        "user": user(login),
        "body": "Closes one of the issues above. Tests are in the same folder; the rollout is behind a flag.",
        "created_at": text_of(opened),
        "updated_at": text_of(before((_COUNT - at) * 0.3)),
        "closed_at": None,
        "merged_at": None,
        "merge_commit_sha": sha(numbers),
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [user(numbers.choice(LOGINS)) for _ in range(numbers.randint(0, 2))],
        "labels": [label("bug")] if numbers.random() < 0.4 else [],
        "head": _end(branch, login, numbers),
        "base": _end("main", "ada", numbers),
    }


def _end(branch: str, login: str, numbers: random.Random) -> dict[str, Any]:
    return {"label": f"acme:{branch}", "ref": branch, "sha": sha(numbers), "user": user(login), "repo": _repository()}


def _repository() -> dict[str, Any]:
    owner = {**user("ada"), "login": "acme", "node_id": "O_kgDOBk2x1A", "type": "Organization"}
    return {
        "id": 553_201_884,
        "node_id": "R_kgDOIPlDnA",
        "name": "shop",
        "full_name": "acme/shop",
        "private": True,
        "owner": owner,
        "html_url": _PAGE,
        "description": "The shop: carts, checkout, payments, orders.",
        "fork": False,
        "url": REPOSITORY,
        "created_at": "2022-10-18T07:30:11Z",
        "updated_at": "2026-11-19T16:02:45Z",
        "pushed_at": "2026-11-20T08:12:09Z",
        "git_url": "git://github.com/acme/shop.git",
        "ssh_url": "git@github.com:acme/shop.git",
        "clone_url": "https://github.com/acme/shop.git",
        "default_branch": "main",
    }


def _reviews(pull: dict[str, Any], numbers: random.Random) -> list[dict[str, Any]]:
    return [_review(pull, numbers) for _ in range(numbers.choice([0, 0, 1, 1, 2, 3]))]


def _review(pull: dict[str, Any], numbers: random.Random) -> dict[str, Any]:
    number = numbers.randint(2_000_000_000, 2_999_999_999)
    return {
        "id": number,
        "node_id": node_id(numbers, "PRR"),
        "user": user(numbers.choice([one for one in LOGINS if one != pull["user"]["login"]])),
        "body": numbers.choice(["", "Looks good, one question about the retry.", "Please add a test for the timeout."]),
        "state": numbers.choice(["APPROVED", "COMMENTED", "CHANGES_REQUESTED"]),
        "html_url": f"{pull['html_url']}#pullrequestreview-{number}",
        "pull_request_url": pull["url"],
        "commit_id": pull["head"]["sha"],
        "submitted_at": pull["updated_at"],
        "author_association": "MEMBER",
    }


def _status(pull: dict[str, Any], numbers: random.Random) -> dict[str, Any]:
    checks = [_check(pull, name, numbers) for name in _CHECKS]
    has_failed = any(one["state"] == "failure" for one in checks)
    return {
        "state": "failure" if has_failed else "success",
        "statuses": checks,
        "sha": pull["head"]["sha"],
        "total_count": len(checks),
    }


def _check(pull: dict[str, Any], name: str, numbers: random.Random) -> dict[str, Any]:
    state = "failure" if numbers.random() < (0.2 if name in ("browser", "integration") else 0.02) else "success"
    return {
        "url": f"{REPOSITORY}/statuses/{pull['head']['sha']}",
        "state": state,
        "description": f"{name} {'passed' if state == 'success' else 'failed'} in {numbers.randint(11, 940)} s",
        "target_url": f"https://ci.acme.example/runs/{numbers.randint(100_000, 999_999)}/{name}",
        "context": f"ci/{name}",
        "created_at": pull["updated_at"],
        "updated_at": pull["updated_at"],
    }
