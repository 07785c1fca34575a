"""Report undefined names of a module with what to import or write instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from ...data.program_facts import ProgramProblem
from ...errors import CodeModeSyntaxError
from ...protocol.ending_errors import syntax_error
from ...source.checks import placed_items, problem_at
from ...source.free_names import MAX_PROBLEMS
from .hints import absent_hint
from .listing import ListedServer
from .profile import GLOBALS


def absent_names(facts: Any, servers: Iterable[ListedServer]) -> CodeModeSyntaxError | None:
    """Return the error for names of tools that are not imported, and of other hosts. Facts are hostile."""
    problems = list(islice(_problems(facts, servers), MAX_PROBLEMS))
    return syntax_error(cast("list[ProgramProblem]", problems)) if problems else None


def _problems(facts: Any, servers: Iterable[ListedServer]) -> Iterator[dict[str, Any]]:
    paths: dict[str, str] | None = None
    for use in placed_items(facts, "free"):
        name = use.get("name")
        if not isinstance(name, str) or name in GLOBALS:
            continue
        if paths is None:
            paths = {tool.export_name: server.path for server in servers for tool in server.tools}
        path = paths.get(name) if use.get("called") is True else None
        hint = absent_hint(name)
        if path is not None:
            hint = f'Import it: import {{ {name} }} from "@codemode/servers/{path}";'
        if hint is not None:
            yield {**problem_at(use, f"{name} is not defined"), "hint": hint}
