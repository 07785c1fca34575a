"""What a saved program's text names: other saved programs, and tools."""

from __future__ import annotations

from codemode import Tool
from codemode.execution.program_analysis import replace_imports
from codemode.execution.program_library import (
    describe_tool_changes,
    find_saved_program_mentions,
    hash_mentioned_tools,
    may_mention_saved_programs,
)
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools

MENTIONS = {
    "await saved.a(1); saved?.b(2)": (("a", "b"), False),
    "saved['a']; saved[`b`]": (("a", "b"), False),
    "saved[name](1)": ((), True),
    "const { a } = saved;": ((), True),
    "// saved.a\n/* saved.b */ 'saved.c'": ((), False),
    "saved.$search('x')": ((), False),
    "row.saved.a": ((), False),
    'import { a, b as c } from "@codemode/saved";': (("a", "b"), False),
    'import * as all from "@codemode/saved";': ((), True),
    'await import("@codemode/saved")': ((), True),
    "s\\u0061ved.a()": ((), True),
}


def test_saved_programs_that_a_text_names():
    for text, (certain, is_open) in MENTIONS.items():
        found = find_saved_program_mentions(text)
        assert (found.names, found.has_computed_names) == (certain, is_open), text
    assert not may_mention_saved_programs("unsaved(1)")


NAMED = {
    "tools.crm.get_order({})": ["crm.get_order"],
    'tools["crm"].get_order({})': ["crm.get_order"],
    "callTool('crm.get_order', {})": ["crm.get_order"],
    "crm.get_order({})": ["crm.get_order"],
    'import { getOrder } from "@codemode/servers/crm";': ["crm.get_order"],
    'import * as c from "@codemode/servers/crm";\nc.getOrder()': ["crm.get_order"],
    "tools.map(1)": ["map"],
    "rows.map(one => one)": [],
    "// tools.map(1)": [],
    "tools?.map(1)": ["map"],
}


def test_tools_that_a_text_names():
    catalog = Catalog(collect_tools([Tool(name, execute=lambda: 1) for name in ("crm.get_order", "map")]))
    for text, names in NAMED.items():
        assert sorted(hash_mentioned_tools(text, catalog)) == names, text


def test_changes_are_named():
    pinned = {"a": {"description": "1", "input schema": "1"}, "b": {}}
    now = {"a": {"description": "1", "input schema": "2"}, "c": {}}
    assert describe_tool_changes(pinned, now) == [
        "the input schema of the tool 'a' has changed",
        "the tool 'b' is gone",
        "the tool 'c' was not there",
    ]


def test_imports_become_reads_in_the_same_lines():
    text = 'import { a as b,\n  c } from "@codemode/servers/x";\nimport * as s from "@codemode/saved";\nreturn b;'
    assert replace_imports(text) == (
        'const { a: b,\n  c } = await $import("@codemode/servers/x");\nconst s = saved;\nreturn b;'
    )
    assert replace_imports('import saved from "@codemode/saved";\nreturn saved.a()') == "\nreturn saved.a()"
    assert replace_imports('import fs from "fs";') == 'import fs from "fs";'


def test_hostile_texts_are_read_once():
    """Each of these took a minute and more with a pattern that begins anew at each unclosed end."""
    size = 60_000
    for piece in ("/*", '"\\"', "'\\'", "import {", "import type a\n", "saved['", 'saved["', "a . ", "a[", "`", "x?."):
        text = piece * (size // len(piece))
        find_saved_program_mentions(text)
        replace_imports(text)
        hash_mentioned_tools(text, Catalog(collect_tools([])))
