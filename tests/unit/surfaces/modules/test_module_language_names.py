"""What the language calls by itself is no export: neither text of a namespace nor `await` makes a call."""

from __future__ import annotations

from codemode.surfaces.modules.module_tools import assign_export_names

CALLED_BY_LANGUAGE = ("then", "toJSON", "toLocaleString", "toString", "valueOf")


def test_no_export_has_a_name_that_the_language_calls() -> None:
    exports = assign_export_names([*CALLED_BY_LANGUAGE, "toString_", "list"])
    assert not {*CALLED_BY_LANGUAGE}.intersection(exports.values())
    assert len({*exports.values()}) == len(exports)
    assert exports["list"] == "list"
    assert exports["valueOf"] == "valueOf_"
