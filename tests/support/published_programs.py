"""Read the programs that models wrote in the published results of kunchenguid/axi (MIT).

`CODEMODE_AXI` names a checkout of that repository; without it tests look into `tests/data/axi`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("CODEMODE_AXI", Path(__file__).parents[1] / "data" / "axi"))
CONDITIONS = (
    "bench-github/published-results/mcp-with-code-mode",
    "bench-browser/published-results/chrome-devtools-mcp-code",
)
_HEREDOC = re.compile(r"<<\s*-?\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?)\n\s*\1", re.DOTALL)


def has_published_programs() -> bool:
    """Return True when the results are on this machine."""
    return all((FOLDER / condition).is_dir() for condition in CONDITIONS)


def read_published_programs() -> list[str]:
    """Return each distinct program of the transcripts, in the order in which it was first written."""
    programs: dict[str, None] = {}
    for condition in CONDITIONS:
        for transcript in sorted((FOLDER / condition).rglob("agent_output.txt")):
            programs.update(dict.fromkeys(_programs_of(transcript.read_text(encoding="utf-8"))))
    return list(programs)


def _programs_of(transcript: str) -> Iterator[str]:
    """Yield what a transcript writes into files: whole, by an edit, or by a here-document of the shell."""
    files: dict[str, str] = {}
    for tool, given in _tool_uses(transcript):
        if tool == "Write":
            files[given["file_path"]] = given["content"]
            yield given["content"]
        elif tool == "Edit" and given["old_string"] in (before := files.get(given["file_path"], "")):
            count = -1 if given.get("replace_all") else 1
            files[given["file_path"]] = before.replace(given["old_string"], given["new_string"], count)
            yield files[given["file_path"]]
        elif tool == "Bash":
            yield from (match.group(2) for match in _HEREDOC.finditer(given["command"]))


def _tool_uses(transcript: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in transcript.splitlines():
        try:
            content = json.loads(line).get("message", {}).get("content", ())
        except ValueError:
            continue
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "tool_use":
                yield part["name"], part["input"]
