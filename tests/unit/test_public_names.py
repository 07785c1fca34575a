"""The public names are told three times: to type checkers, to `import *`, and to whoever asks for one late."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import codemode

SOURCE = Path(str(codemode.__file__)).read_text(encoding="utf-8")


def test_type_checkers_are_told_what_is_found_at_run_time():
    told = {
        alias.name: statement.module
        for statement in ast.walk(ast.parse(SOURCE))
        if isinstance(statement, ast.ImportFrom) and statement.level == 1
        for alias in statement.names
    }
    late = {name: module for module, names in codemode._LATE.items() for name in names.split()}
    assert told.pop("late_names") == "host.imports"  # how they are imported; no name for anybody else
    assert sorted(told) == sorted(codemode.__all__)
    assert late == told
    for name, module in told.items():
        assert getattr(codemode, name) is getattr(import_module(f"codemode.{module}"), name)


def test_dir_names_them_all_before_they_are_asked_for():
    program = "import codemode; print(set(codemode.__all__) <= set(dir(codemode)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'codemode' has no attribute 'nonsense'"):
        _ = codemode.nonsense
    with pytest.raises(ImportError, match="nonsense"):
        from codemode import nonsense  # noqa: F401
