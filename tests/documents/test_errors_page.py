"""The table of errors names every class with its own code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import codemode
from codemode import CodeModeError, errors, stores, types

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([A-Z]\w*[a-z])` \| ([^|]+) \|", PAGE, re.MULTILINE))


def test_every_class_has_a_row_with_its_code():
    public = [getattr(module, name) for module in (codemode, stores, types) for name in module.__all__]
    public += [value for name, value in vars(errors).items() if name.startswith("CodeMode")]
    classes = {one.__name__: one for one in public if isinstance(one, type) and issubclass(one, CodeModeError)}
    assert ROWS.keys() == classes.keys()
    assert [name for name, one in classes.items() if f"`{one.default_code}`" not in ROWS[name]] == []


def test_every_code_in_the_table_is_one_of_the_package():
    source = "".join(path.read_text(encoding="utf-8") for path in Path(codemode.__file__).parent.rglob("*.py"))
    codes = {code for cell in ROWS.values() for code in re.findall(r"`(\w+)`", cell)}
    assert len(codes) >= len(ROWS)
    assert [code for code in codes if f'"{code}"' not in source] == []
    known = (Path(codemode.__file__).parent / "errors.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(CODE_MODE_\w+)"', known)) <= codes
