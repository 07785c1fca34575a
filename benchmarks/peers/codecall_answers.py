"""Asks the published CodeCall plugin, built from its source, what `tests/data/codecall_peer_answers.json` says of it.

`python -m benchmarks.peers.codecall_answers FRONTMCP ENCLAVE [--write]` takes checkouts of agentfront/frontmcp and of
its engine, agentfront/enclave, and prints what is answered otherwise; with `--write` the file says so then. What the
bundle needs beside them comes from npm into `.bench`. Without Node.js, npm or a checkout it says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT

ANSWERS = ROOT / "tests" / "data" / "codecall_peer_answers.json"
HERE = Path(__file__).parent / "codecall"
FOLDER = ROOT / ".bench" / "codecall"
PACKAGES = ("esbuild@0.27", "acorn@8.15.0", "acorn-walk@8.3.4", "astring@1.9.0", "zod@4", "@babel/standalone@7")
NEEDED = {"FRONTMCP": "plugins/plugin-codecall/src", "ENCLAVE": "libs/core/src"}
_INSTALL_SECONDS, _ANSWER_SECONDS = 600, 120
_MOST_SAID = 110


class MissingError(Exception):
    """Something that this needs is not here."""


def main(arguments: list[str] | None = None) -> int:
    """Ask, and say what has changed. Returns 0 also where nothing could be asked: nobody has to have the source."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers.codecall_answers")
    parser.add_argument("frontmcp", type=Path, help="a checkout of agentfront/frontmcp")
    parser.add_argument("enclave", type=Path, help="a checkout of agentfront/enclave")
    parser.add_argument("--write", action="store_true", help="let the file say what is answered now")
    given = parser.parse_args(arguments)
    try:
        answers = asked(given.frontmcp, given.enclave)
    except MissingError as missing:
        print(f"skipped: {missing}")
        return 0
    kept = json.loads(ANSWERS.read_text(encoding="utf-8"))
    changed = 0
    for at, (old, new) in enumerate(zip(kept["answers"], answers, strict=True)):
        if _seen(old) != _seen(new):
            changed += 1
            print(f"{at:2} {old['script']}\n   was {_seen(old)}\n   is  {_seen(new)}")
    print(f"{len(answers)} scripts were answered, {changed} of them otherwise than before")
    if given.write:
        kept["answers"] = answers
        ANSWERS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def asked(frontmcp: Path, enclave: Path) -> list[dict[str, Any]]:
    """Return the plugin's answers to the scripts of the file. Raises `MissingError` saying what is not here."""
    for name, checkout in (("FRONTMCP", frontmcp), ("ENCLAVE", enclave)):
        if not (checkout / NEEDED[name]).is_dir():
            raise MissingError(f"{name}: there is no {NEEDED[name]} in {checkout}")
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingError("node and npm are not on the path")
    rows: list[dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))["answers"]
    bundle = _built(node, npm, frontmcp.resolve(), enclave.resolve())
    questions = [{"script": row["script"], "options": row.get("options")} for row in rows]
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    said = _run([node, str(bundle)], given=lines, seconds=_ANSWER_SECONDS).splitlines()
    if len(said) != len(rows):
        raise MissingError(f"the plugin answered {len(said)} of {len(rows)} scripts")
    return [_answer(row, json.loads(line)) for row, line in zip(rows, said, strict=True)]


def _built(node: str, npm: str, frontmcp: Path, enclave: Path) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    (FOLDER / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    _run([npm, "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--silent", *PACKAGES])
    bundle = FOLDER / "answer.mjs"
    _run([node, str(HERE / "build.mjs"), str(FOLDER), str(frontmcp), str(enclave), str(bundle)])
    return bundle


def _run(command: list[str], *, given: str | None = None, seconds: float = _INSTALL_SECONDS) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=given, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{Path(command[0]).name} failed: {error}") from error
    if done.returncode:
        complaint = done.stderr.strip().splitlines() or ["no word"]
        raise MissingError(f"{Path(command[0]).name} failed: {complaint[-1]}")
    return done.stdout


def _answer(row: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    asked = {key: row[key] for key in ("script", "options") if key in row}
    said = {key: answer[key] for key in ("status", "result") if key in answer}
    if "says" in answer:
        # The first finding is what an answer is known by; the rest lists what is allowed.
        said["says"] = answer["says"].removeprefix("AgentScript validation failed:\n").splitlines()[0][:_MOST_SAID]
    if answer["calls"]:
        said["calls"] = answer["calls"]
    return {**asked, **said}


def _seen(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: answer.get(key) for key in ("status", "result", "calls")}


if __name__ == "__main__":
    sys.exit(main())
