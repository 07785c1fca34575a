"""Which Pythons `make test-all` finds: those that run, are whole and are of the version that their name says."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[1] / "pythons.py"
_SPEC = importlib.util.spec_from_file_location("all_pythons", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
pythons = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pythons)


def put(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def where(path: Path, home: Path) -> dict[str, str]:
    return {"PATH": str(path), "HOME": str(home)}


def test_what_the_path_has_is_found(tmp_path: Path) -> None:
    here = put(tmp_path / "bin", "python3.12", "echo 3.12")
    assert pythons.find("3.12", where(tmp_path / "bin", tmp_path)) == str(here)
    assert pythons.find("3.13", where(tmp_path / "bin", tmp_path)) is None


@pytest.mark.parametrize("script", ["exit 127", "echo 3.11", "echo 'No module named venv' >&2; exit 1"])
def test_what_does_not_run_as_its_name_says_is_passed_over_for_the_next(tmp_path: Path, script: str) -> None:
    put(tmp_path / "shims", "python3.13", script)
    put(tmp_path / ".pyenv/versions/3.13.0/bin", "python3.13", "exit 1")
    whole = put(tmp_path / ".pyenv/versions/3.13.1/bin", "python3.13", "echo 3.13")
    assert pythons.find("3.13", where(tmp_path / "shims", tmp_path)) == str(whole)


def test_the_python_that_runs_this_is_whole(tmp_path: Path) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    put(tmp_path, f"python{version}", f'exec "{sys.executable}" "$@"')
    assert pythons.find(version, {**os.environ, "PATH": str(tmp_path)}) is not None


def test_every_python_is_run_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = {version: f"/p/{version}" for version in ("3.11", "3.13")}
    monkeypatch.setattr(pythons, "find", there.get)
    make = put(tmp_path, "make", 'echo "ran $*"; case "$*" in *3.11*) exit 2;; esac')
    assert pythons.main([str(make), "test"]) == 1
    said = capfd.readouterr().out.splitlines()
    assert said[-4:] == [
        "Python 3.11: FAILED (/p/3.11)",
        "Python 3.12: not there",
        "Python 3.13: passed (/p/3.13)",
        "Python 3.14: not there",
    ]
    assert [one for one in said if one.startswith("ran")] == [
        "ran test PYTHON=/p/3.11 VENV=.venv/python3.11",
        "ran test PYTHON=/p/3.13 VENV=.venv/python3.13",
    ]


def test_a_run_on_no_python_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "find", lambda version: None)
    assert pythons.main(["false"]) == 1
