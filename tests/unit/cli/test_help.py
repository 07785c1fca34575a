"""Every help text of the command line has the exit codes, and ends with an example that parses."""

from __future__ import annotations

import shlex

import pytest

from codemode.cli import _find_external_command_parser, _parse_options, main


def test_help_has_exit_codes_and_ends_with_an_example(capsys: pytest.CaptureFixture[str]):
    for command in ([], ["quickstart"], ["run"], ["describe"], ["doctor"], ["completion"], ["console"], ["mcp"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        shown = capsys.readouterr().out
        assert (ended.value.code, "exit codes:" in shown) == (0, True), command
        example = shown.rstrip("\n").rpartition("\n")[2]
        assert example.startswith(" ".join(["example: codemode", *command])), command
        arguments = shlex.split(example.removeprefix("example: codemode ").split(" > ")[0])
        added = _find_external_command_parser(arguments[0]) if arguments[0] in ("console", "mcp") else None
        added.parse_args(arguments[1:]) if added else _parse_options(arguments)
