"""Edits of clients' texts: whatever the text looks like, the servers change as meant and nothing else does."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import pairwise
from typing import Any

from codemode_gateway.client_configs.file_formats import (
    JsonDocument,
    JsonServersFormat,
    TomlServersFormat,
    iterate_toml_statements,
)
from codemode_gateway.config.config_file import parse_jsonc
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c d", "é", 'q"t', "codemode", "x.y", "zz"])
ENTRIES = st.fixed_dictionaries(
    {"command": st.text(max_size=6)}, optional={"args": st.lists(st.text(max_size=6), max_size=2)}
)
SERVERS = st.dictionaries(NAMES, ENTRIES, max_size=4)
OTHERS = st.dictionaries(
    st.sampled_from(["one", "two", "codemode"]),
    st.none() | st.integers() | st.lists(st.text(max_size=4), max_size=2),
    max_size=3,
)
ENTRY = {"command": "gateway", "args": ["mcp", "--config", "/x"]}
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
MARK = re.compile(r"<\d+>")


@st.composite
def json_texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Return a client's text, with comments and gaps anywhere, and its servers."""
    servers = draw(SERVERS)
    keys = draw(st.permutations([*draw(OTHERS).items(), ("mcpServers", servers)]))
    said = dict(keys)
    tokens = TOKENS.findall(json.dumps(said))
    text = ""
    for number, token in enumerate(tokens):
        closes = token in ("}", "]") and tokens[number - 1] not in ("{", "[")
        text += ("," if closes and draw(st.booleans()) else "") + token
        kind = draw(st.sampled_from(["", "", " ", "\n", "\n  ", "\r\n\t", "block", "line"]))
        text += {"block": f"/*<{number}>*/", "line": f" // <{number}>\n"}.get(kind, kind)
    return text, servers


@given(json_texts(), st.data())
def test_servers_of_json_move_and_come_back(given_text: tuple[str, dict[str, Any]], data: st.DataObject):
    text, servers = given_text
    file = JsonServersFormat(("mcpServers",))
    moved = [name for name in servers if data.draw(st.booleans()) and name != "codemode"]
    said = parse_jsonc(text).root.to_python()
    new = file.replace_servers_with_gateway(text, moved, "codemode", ENTRY)
    now = parse_jsonc(new).root.to_python()
    assert now["mcpServers"] == {**{name: one for name, one in servers.items() if name not in moved}, "codemode": ENTRY}
    assert {**now, "mcpServers": 0} == {**said, "mcpServers": 0}
    assert [*now] == [*said]
    assert MARK.findall(new) == [one for one in MARK.findall(text) if one in MARK.findall(new)]
    assert file.replace_servers_with_gateway(new, [], "codemode", ENTRY) == new

    again = [*moved, *(["codemode"] if "codemode" in servers else [])]
    back = file.restore_servers(new, text, "codemode", again)
    assert file.parse_servers(back) == servers
    assert {**parse_jsonc(back).root.to_python(), "mcpServers": 0} == {**said, "mcpServers": 0}


@given(json_texts(), st.data())
def test_comments_between_what_stays_stay(given_text: tuple[str, dict[str, Any]], data: st.DataObject):
    text, servers = given_text
    moved = [name for name in servers if data.draw(st.booleans()) and name != "codemode"]
    node = parse_jsonc(text).root.get("mcpServers")
    assert node is not None
    gone = [(one.start, one.node.end) for one in node.members if one.key in moved or one.key == "codemode"]
    kept = [one[0] for one in MARK.finditer(text) if not any(start <= one.start() < end for start, end in gone)]
    assert [
        one
        for one in MARK.findall(
            JsonServersFormat(("mcpServers",)).replace_servers_with_gateway(text, moved, "codemode", ENTRY)
        )
        if one in kept
    ] == kept


@given(json_texts(), NAMES, ENTRIES)
def test_a_member_is_added_and_nothing_else_changes(
    given_text: tuple[str, dict[str, Any]], name: str, entry: dict[str, Any]
):
    text, servers = given_text
    name = f"new {name}"
    for keys, expected in ((("mcpServers",), {**servers, name: entry}), (("of", "mine"), {name: entry})):
        new = JsonDocument.parse(text).create_text_with_member(keys, name, entry)
        node: Any = parse_jsonc(new).root.to_python()
        for key in keys:
            node = node[key]
        assert node == expected
        assert MARK.findall(new) == MARK.findall(text)
        assert [*parse_jsonc(text).root.to_python()] == [
            key for key in parse_jsonc(new).root.to_python() if key != "of"
        ]


TABLES = st.lists(
    st.sampled_from(
        [
            '[mcp_servers.a]\ncommand = "x"\n',
            "[mcp_servers.b] # b\nargs = [\n  'y', # ]\n  \"[mcp_servers.c]\",\n]\n",
            "[mcp_servers.b.env]\nA = '''\n[mcp_servers.d]\n'''\n",
            '[ mcp_servers . "c d" ]\r\nurl = "http://h"\r\n',
            '# one\n[one]\nx = """\n# [two]\\""" """\n\n',
            "[[many]]\nx = 1\n\n\n",
            "[[many]] # more\ny = { z = [1, 2] }\n",
            "[two.three]\n",
        ]
    ),
    max_size=8,
)


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@given(TABLES.map(lambda parts: 'first = "#"\n' + "\n".join(dict.fromkeys(parts))).filter(is_toml), st.data())
def test_servers_of_toml_move_and_come_back(text: str, data: st.DataObject):
    file = TomlServersFormat(("mcp_servers",))
    said = tomllib.loads(text)
    servers = said.pop("mcp_servers", {})
    moved = [name for name in servers if data.draw(st.booleans())]
    new = file.replace_servers_with_gateway(text, moved, "codemode", ENTRY)
    now = tomllib.loads(new)
    assert now.pop("mcp_servers") == {
        **{name: one for name, one in servers.items() if name not in moved},
        "codemode": ENTRY,
    }
    assert now == said
    assert file.replace_servers_with_gateway(new, [], "codemode", ENTRY) == new
    assert [line for line in new.splitlines() if line in ("# one", "# [two]")] == [
        line for line in text.splitlines() if line in ("# one", "# [two]")
    ]
    back = tomllib.loads(file.restore_servers(new, text, "codemode", moved))
    assert back.pop("mcp_servers", {}) == servers
    assert back == said


@given(st.text(alphabet="a.\"'[]={}#\\\n\r \t", max_size=30))
def test_statements_cover_any_toml_in_order(text: str):
    if not is_toml(text):
        return
    found = list(iterate_toml_statements(text))
    assert all(one.start < one.end for one in found)
    assert all(one.end <= two.start for one, two in pairwise(found))
    left = text
    for one in reversed(found):
        left = left[: one.start] + left[one.end :]
    assert tomllib.loads(left) == {}


def test_all_control_characters_of_an_entry_are_toml():
    text = "".join(map(chr, [*range(1, 0x20), 0x7F, 0x2028, 0x1F600]))
    assert TomlServersFormat(("mcp_servers",)).parse_servers(
        TomlServersFormat(("mcp_servers",)).replace_servers_with_gateway("", [], "codemode", {"command": text})
    ) == {"codemode": {"command": text}}
