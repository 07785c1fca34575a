"""The public names are in one table, from which they are imported late; type checkers read the same in imports."""

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
        if alias.asname == alias.name  # so that type checkers take them for public
    }
    late = {name: module for module, names in codemode._LAZY_NAMES.items() for name in names.split()}
    assert late == told
    assert sorted(told) == sorted(codemode.__all__)
    for name, module in told.items():
        assert getattr(codemode, name) is getattr(import_module(f"codemode.{module}"), name)


def test_the_names_at_the_top_are_few():
    assert len(codemode.__all__) <= 60


def test_dir_names_them_all_before_they_are_asked_for():
    program = "import codemode; print(set(codemode.__all__) <= set(dir(codemode)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'codemode' has no attribute 'nonsense'"):
        _ = codemode.nonsense
    with pytest.raises(ImportError, match="nonsense"):
        from codemode import nonsense  # noqa: F401
