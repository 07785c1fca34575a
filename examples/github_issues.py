"""GitHub's issues API as tools, from an excerpt of its OpenAPI document. No network, no key: answers are recorded.

The program that a model would write goes through all pages of open issues, finds those that nobody has answered, and
labels them. Labelling writes, so a person is asked about each call; here a function stands for the person. One issue is
locked: GitHub refuses to label it, and the program goes on with the others.

Needs this package with an extra: ``pip install '.[openapi]'`` in the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import httpx

    from codemode import create_code_mode_tool
    from codemode.openapi import load_spec, openapi_tools
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install '.[openapi]'` in the root of the repository brings.")

# From https://github.com/github/rest-api-description (MIT), cut down to three operations.
DOCUMENT = Path(__file__).with_name("github_openapi.json")
API = "https://api.github.com"
REPOSITORY = "/repos/octocat/Hello-World/issues"

PROGRAM = """\
const repository = { owner: "octocat", repo: "Hello-World" };
const unanswered = [];
let input = { ...repository, state: "open", per_page: 2 };
while (input) {
  const page = await tools.issues_list_for_repo(input);
  unanswered.push(...page.items.filter((issue) => issue.comments === 0 && !issue.pull_request));
  input = page.links.next?.input;
}
const labelled = [], refused = [];
for (const { number } of unanswered) {
  try {
    await tools.issues_add_labels({ ...repository, issue_number: number, body: { labels: ["needs answer"] } });
    labelled.push(number);
  } catch (error) {
    refused.push({ number, status: error.status, why: error.body?.message });
  }
}
return { labelled, refused };
"""


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def recorded_answers(request: httpx.Request, examples: Mapping[str, Any]) -> httpx.Response:
    """Answer with what GitHub's document shows as recorded answers, under other numbers."""

    def issue(number: int, comments: int) -> dict[str, Any]:
        recorded = {key: one for key, one in examples["issue-items"]["value"][0].items() if key != "pull_request"}
        return {**recorded, "number": number, "comments": comments}

    path = request.url.path
    if path == REPOSITORY and request.url.params.get("page") == "2":
        return httpx.Response(200, json=[issue(3, 0), issue(4, 0)])
    if path == REPOSITORY:
        link = f'<{API}{REPOSITORY}?state=open&per_page=2&page=2>; rel="next"'
        return httpx.Response(200, json=[issue(1, 4), issue(2, 0)], headers={"link": link})
    if path == f"{REPOSITORY}/3/labels":
        return httpx.Response(403, json={"message": "This issue is locked", "status": "403"})
    return httpx.Response(200, json=examples["label-items"]["value"])


async def main() -> None:
    """Run the program, and print what it is asked about, what it sends and what it returns."""
    spec = await load_spec(DOCUMENT)

    def answer(request: httpx.Request) -> httpx.Response:
        say(f"{request.method} {request.url.raw_path.decode()}")
        return recorded_answers(request, spec.document["components"]["examples"])

    def approve(request: Any) -> str:
        say(f"approved: {request.tool_name} of issue {request.input['issue_number']}")
        return "approved"

    client = httpx.AsyncClient(
        transport=httpx.MockTransport(answer),  # leave this out, and set a token, to reach GitHub
        base_url=API,
        headers={"Authorization": "Bearer github_pat_example", "X-GitHub-Api-Version": "2022-11-28"},
    )
    async with client:
        tools = openapi_tools(spec, client=client, include=["issues/*"], needs_approval="unsafe")
        code_mode = create_code_mode_tool(tools, {"approval": {"on_approval_required": approve}})
        say(f"{len(tools)} tools of {spec.title}: {', '.join(tool.name for tool in tools)}")
        result = await code_mode.execute({"js": PROGRAM})
    say(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
