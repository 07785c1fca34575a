"""Which calls are asked about: the operator's word against what a server declares."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.approvals.remembered_answers import (
    FILE_NAME,
    RememberedAnswers,
    ToolIdentity,
    compute_definition_digest,
    create_approval_hook,
)
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.config.patterns import needs_approval
from codemode_gateway.gateway.principals import LOCAL, CallOrigin, Principal
from in_loop import in_loop

from codemode import ToolCallContext

READS, WRITES = {"readOnlyHint": True}, {"readOnlyHint": False, "destructiveHint": False}
DESTROYS, SILENT = {"destructiveHint": True}, {"title": "Harmless"}
LIES = {"readOnlyHint": True, "destructiveHint": True}


def config(**said: Any) -> ServerConfig:
    return ServerConfig("shop", "stdio", **said)


def tool(annotations: Any = None, name: str = "refund", **more: Any) -> types.Tool:
    said = None if annotations is None else types.ToolAnnotations.model_validate(annotations)
    return types.Tool(name=name, input_schema={"type": "object"}, annotations=said, **more)


@pytest.mark.parametrize(
    ("approval", "asked"),
    [
        ("never", []),
        ("declared", [None, {}, DESTROYS, SILENT, LIES, {"readOnlyHint": False}, {"idempotentHint": True}]),
        ("writes", [None, {}, DESTROYS, SILENT, LIES, {"readOnlyHint": False}, {"idempotentHint": True}, WRITES]),
        (
            "always",
            [None, {}, DESTROYS, SILENT, LIES, {"readOnlyHint": False}, {"idempotentHint": True}, WRITES, READS],
        ),
    ],
)
def test_what_a_server_says_of_its_tool_decides_as_the_policy_wants(approval: Any, asked: list[Any]) -> None:
    for said in (None, {}, READS, WRITES, DESTROYS, SILENT, LIES, {"readOnlyHint": False}, {"idempotentHint": True}):
        assert needs_approval(config(approval=approval), tool(said)) == (said in asked), said


def test_the_default_is_what_is_declared() -> None:
    assert needs_approval(config(), tool())
    assert not needs_approval(config(), tool(READS))


def test_the_nearest_word_about_a_tool_holds() -> None:
    said = config(
        approval="never", tool_approvals={"re*": "always", "refund_*": "never", "refund_all": "always", "*": "never"}
    )
    asked = {name: needs_approval(said, tool(READS, name)) for name in ("refund", "refund_one", "refund_all", "stock")}
    assert asked == {"refund": True, "refund_one": False, "refund_all": True, "stock": False}


def test_automatic_approval_is_weaker_than_a_word_about_the_tool_and_stronger_than_one_about_the_server() -> None:
    assert not needs_approval(config(approval="always", auto_approve=("ref*",)), tool(DESTROYS))
    assert needs_approval(config(auto_approve=("*",), tool_approvals={"refund": "always"}), tool(READS))
    assert needs_approval(config(auto_approve=("Refund", "refun", "xrefund")), tool())


async def needs(remembered: RememberedAnswers, principal: Principal | None, listed: types.Tool) -> bool:
    rule = create_approval_hook(remembered)(config(), listed)
    assert callable(rule)
    origin = None if principal is None else CallOrigin(principal)
    return await rule({}, ToolCallContext(tool_call_id="call:1", outer_tool_call_id="call", context=origin))


@in_loop
async def test_an_answer_that_always_holds_is_of_one_principal_and_of_one_definition_until_it_is_revoked(
    tmp_path: Path,
) -> None:
    mine, listed = RememberedAnswers(tmp_path), tool()
    known = ToolIdentity("shop", "refund", compute_definition_digest(listed, config()))
    await mine.remember(LOCAL, known, "always")
    other = RememberedAnswers(tmp_path)
    assert not await needs(other, LOCAL, listed)
    assert not await needs(other, Principal("local", "another session"), listed)
    assert await needs(other, Principal("eve"), listed)
    assert await needs(other, None, listed)
    for changed in (
        tool(description="more"),
        tool(SILENT),
        tool(output_schema={"type": "object"}),
        listed.model_copy(update={"input_schema": {"type": "object", "properties": {"all": {}}}}),
    ):
        assert await needs(other, LOCAL, changed)
    assert [(one.principal, one.server, one.tool) for one in other.list_permanent_answers()] == [
        ("local", "shop", "refund")
    ]
    assert other.list_permanent_answers("eve") == ()
    assert (
        other.revoke_permanent_answers("eve", "shop"),
        other.revoke_permanent_answers("local", "shop", "stock"),
    ) == (0, 0)
    assert other.revoke_permanent_answers("local", "shop", "refund") == 1
    assert await needs(mine, LOCAL, listed)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


@in_loop
async def test_an_answer_for_a_session_is_of_that_session(tmp_path: Path) -> None:
    remembered, listed = RememberedAnswers(tmp_path), tool()
    session, known = Principal("ana", "1"), ToolIdentity("shop", "refund", compute_definition_digest(listed, config()))
    await remembered.remember(session, known, "session")
    assert not await needs(remembered, session, listed)
    assert await needs(remembered, Principal("ana", "2"), listed)
    assert await needs(RememberedAnswers(tmp_path), session, listed)
    await remembered.forget_session_answers(session)
    assert await needs(remembered, session, listed)


@in_loop
async def test_a_file_that_cannot_be_read_asks_and_one_that_cannot_be_written_holds_for_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE_NAME).touch(mode=0o600)
    (tmp_path / FILE_NAME).write_text("no database, and long enough to be told from an empty one" * 100)
    remembered, listed = RememberedAnswers(tmp_path), tool()
    assert await needs(remembered, LOCAL, listed)
    await remembered.remember(
        LOCAL, ToolIdentity("shop", "refund", compute_definition_digest(listed, config())), "always"
    )
    assert not await needs(remembered, LOCAL, listed)
    with pytest.raises(OSError, match="cannot be used"):
        remembered.list_permanent_answers()


def linked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def linked_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("made by the gateway"))


@pytest.mark.parametrize(
    "spoil",
    [
        linked,
        linked_to_nothing,
        lambda file: file.chmod(0o644),
        lambda file: file.chmod(0o620),
        lambda file: file.parent.chmod(0o777),
        lambda file: file.parent.chmod(0o1770),
    ],
)
@in_loop
async def test_a_file_that_others_may_have_written_or_read_allows_nothing_and_keeps_nothing(
    tmp_path: Path, spoil: Any
) -> None:
    folder, listed = tmp_path / "state", tool()
    known = ToolIdentity("shop", "refund", compute_definition_digest(listed, config()))
    await RememberedAnswers(folder).remember(LOCAL, known, "always")
    spoil(folder / FILE_NAME)
    assert await needs(RememberedAnswers(folder), LOCAL, listed)
    mine = RememberedAnswers(folder)
    await mine.remember(LOCAL, known, "always")
    assert not await needs(mine, LOCAL, listed)
    assert await needs(RememberedAnswers(folder), LOCAL, listed)
    with pytest.raises(OSError, match="is not used"):
        RememberedAnswers(folder).save_external_answer("local", "session", known, "always")
    assert not (folder / "made by the gateway").exists()


@in_loop
async def test_a_file_of_a_later_version_is_read_and_not_written(tmp_path: Path) -> None:
    remembered, listed = RememberedAnswers(tmp_path), tool()
    known = ToolIdentity("shop", "refund", compute_definition_digest(listed, config()))
    await remembered.remember(LOCAL, known, "always")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other, other:
        other.execute("ALTER TABLE remembered ADD COLUMN why TEXT")
    assert not await needs(RememberedAnswers(tmp_path), LOCAL, listed)
    assert [one.tool for one in remembered.list_permanent_answers()] == ["refund"]
    with pytest.raises(OSError, match="cannot be used"):
        remembered.save_external_answer("local", "session", known, "always")


@in_loop
async def test_whoever_holds_the_file_holds_no_loop(tmp_path: Path) -> None:
    remembered, listed = RememberedAnswers(tmp_path), tool()
    known = ToolIdentity("shop", "refund", compute_definition_digest(listed, config()))
    for begun in (
        lambda: remembered.remember(LOCAL, known, "always"),
        lambda: needs(remembered, LOCAL, listed),
        lambda: remembered.forget(LOCAL, known),
        lambda: remembered.forget_session_answers(LOCAL),
    ):
        (tmp_path / FILE_NAME).touch(mode=0o600)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.ensure_future(begun())
            await asyncio.sleep(0)
            assert not waiting.done()
            other.rollback()
        assert not await waiting
    assert remembered.list_permanent_answers() == ()
