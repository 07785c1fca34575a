"""The corpus of programs beside this file, and Node's own type stripping as their judge."""

import json
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

from required import node_path

from codemode.guest.analysis import analyse

FOLDER = Path(__file__).parent
SAME_AS_NODE = ("annotations", "classes", "declarations", "expressions", "programs")
SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
NODE_SECONDS = 120
PARSE_MS = 10_000


def programs(theme: str) -> dict[str, str]:
    """The programs of one file by name; each starts with a line `//# name`."""
    chunks = ("\n" + (FOLDER / f"{theme}.ts").read_text(encoding="utf-8")).split("\n//# ")[1:]
    return {f"{theme}: {name}": source for name, _, source in (chunk.partition("\n") for chunk in chunks)}


def types_in_contexts() -> dict[str, str]:
    """Every type of types.txt in every place of contexts.txt (`@` stands for the type)."""
    types = (FOLDER / "types.txt").read_text(encoding="utf-8").splitlines()
    contexts = (FOLDER / "contexts.txt").read_text(encoding="utf-8").splitlines()
    return {f"{kind} in {place}": place.replace("\\n", "\n").replace("@", kind) for place in contexts for kind in types}


@cache
def analyser() -> Any:
    """The analyser of this process, with the parser of this environment."""
    return analyse.load_analyser(SITE_PATHS)


def result_of(source: str) -> dict[str, Any]:
    """What the analysis makes of a program, with all the time it needs."""
    return analyser()(source, PARSE_MS)


def judged(sources: dict[str, str]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """For each program our result and the verdict of reference.mjs, all from one Node process."""
    ours = {name: result_of(source) for name, source in sources.items()}
    asked = [{"source": sources[name], "ours": result.get("js")} for name, result in ours.items()]
    ended = subprocess.run(
        [node_path(), "--expose-internals", "--no-warnings", str(FOLDER / "reference.mjs")],
        input=json.dumps({"programs": asked}),
        capture_output=True,
        encoding="utf-8",
        timeout=NODE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return {name: (ours[name], verdict) for name, verdict in zip(ours, json.loads(ended.stdout), strict=True)}
