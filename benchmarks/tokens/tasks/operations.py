"""A task over operations of an OpenAPI document."""

from __future__ import annotations

from typing import Any

from .task import Direct, Task

_REPOSITORY: dict[str, Any] = {"owner": "acme", "repo": "shop"}
_LISTED: dict[str, Any] = {**_REPOSITORY, "state": "open", "labels": "bug", "per_page": 100}
_LABELS = {"labels": ["needs answer"]}


def _unanswered() -> Direct:
    [page] = yield [("issues_list_for_repo", _LISTED)]
    found = [[one["number"], one["title"]] for one in page["items"] if one["comments"] == 0]
    yield [("issues_add_labels", {**_REPOSITORY, "issue_number": number, "body": _LABELS}) for number, _ in found]
    return found


TASKS = [
    Task(
        name="unanswered bugs, by OpenAPI",
        question='Give each open bug of acme/shop that nobody has commented on the label "needs answer". Which ones?',
        direct=_unanswered,
        programs=[
            """\
const repo = { owner: "acme", repo: "shop" };
const { items } = await tools.issues_list_for_repo({ ...repo, state: "open", labels: "bug", per_page: 100 });
const found = items.filter((issue) => issue.comments === 0);
await Promise.all(found.map(({ number }) =>
  tools.issues_add_labels({ ...repo, issue_number: number, body: { labels: ["needs answer"] } })));
return found.map(({ number, title }) => [number, title]);"""
        ],
        searches=[["list issues of a repository", "add labels to an issue"]],
        answer=lambda found: "\n".join(f"{number}: {title}" for number, title in found),
        is_of_api=True,
    ),
]
