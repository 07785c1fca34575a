"""`codemode mcp remove`: one server leaves the configuration file, and nothing else of the file changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemode.cli import main

LONE = "[mcp_servers.a]\ncommand = 'x'\n"

REMOVED = [
    ("first", "c.json", '{\n  "mcpServers": {\n    // keep\n    "a": {"command": "x"}, // of a\n    "b": {}\n  }\n}\n',
     '{\n  "mcpServers": {\n    // keep\n     // of a\n    "b": {}\n  }\n}\n'),
    ("last", "c.json", '{\n "mcpServers": {\n  "b": {},\n  "a": {}\n }, // all\n "codemode": {"approval": "always"}\n}',
     '{\n "mcpServers": {\n  "b": {}\n }, // all\n "codemode": {"approval": "always"}\n}'),
    ("only one", "c.json", '{"mcpServers": {"a": {"command": "x"}}}', '{"mcpServers": {}}'),
    ("broken entry", "c.json", '{"mcpServers": {"a": 7, "b": {}}}', '{"mcpServers": { "b": {}}}'),
    ("nested key", "c.json", '{"mcp": {"servers": {"a": {}, "b": {}}}}', '{"mcp": {"servers": { "b": {}}}}'),
    ("dotted key", "c.json", '{"amp.mcpServers": {"a": {}}}', '{"amp.mcpServers": {}}'),
    ("array", "c.json", '{"servers": [{"name": "b"}, {"name": "a"}]}', '{"servers": [{"name": "b"} ]}'),
    ("array with something else", "c.json", '{"servers": [7, {"name": "a"}]}', '{"servers": [7 ]}'),
    ("two objects", "c.json", '{"mcpServers": {"a": {}}, "servers": {"a": {}}}', '{"mcpServers": {}, "servers": {}}'),
    ("TOML", "c.toml", f"# top\n{LONE}\n[mcp_servers.b]\ncommand = 'y' # stays\n",
     "# top\n[mcp_servers.b]\ncommand = 'y' # stays\n"),
    ("TOML alone", "c.toml", LONE, ""),
]  # fmt: skip


def test_a_server_is_removed_and_the_rest_of_the_file_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for row, name, before, after in REMOVED:
        file = tmp_path / name
        file.write_text(before)
        assert main(["mcp", "remove", "a", "--config", str(file)]) == 0, row
        assert file.read_text() == after, row
        assert capsys.readouterr() == (f"removed a from {file}\n", ""), row


def test_a_name_that_is_not_there_changes_nothing_and_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "c.json"
    file.write_text(text := '{"mcpServers": {"files": {}, "file": {}, "git": {}}}')
    for name, hint in (
        ("flies", 'did you mean "files" or "file"?'),
        ("GIT", 'did you mean "git"?'),
        ("\u202ezzz", "`codemode mcp list` lists the servers"),
    ):
        assert main(["mcp", "remove", name, "--config", str(file)]) == 2, name
        shown = capsys.readouterr()
        assert (shown.out, hint in shown.err, str(file) in shown.err) == ("", True, True), shown.err
        assert "\u202e" not in shown.err
        assert file.read_text() == text


def test_a_server_that_shares_its_entry_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "c.toml"
    file.write_text(text := "mcp_servers = {a = {command = 'x'}, b = {command = 'y'}}\n")
    assert main(["mcp", "remove", "a", "--config", str(file)]) == 2
    assert "remove it by hand" in capsys.readouterr().err
    assert file.read_text() == text


def test_without_a_configuration_the_way_to_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "remove", "a", "--config", str(tmp_path / "none.json")]) == 2
    assert "there is no configuration" in capsys.readouterr().err
