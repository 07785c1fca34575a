"""Invocations that pause or rest go on with the versions of saved programs that they started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_saved_programs import PAUSES, tools_with
from waiting import within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    Interrupt,
    ModuleServer,
    ProgramLibrary,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

KEYS = {"keys": "a key of this test, which nobody else has"}


def test_a_rest_goes_on_in_another_process_with_its_versions(tmp_path: Path):
    def pair_on(store: Any) -> Any:
        return create_exec_wait_tools(
            tools_with(), settings={"continuation": KEYS}, library=ProgramLibrary(store), store=store
        )

    async def main() -> Any:
        first = SqliteInterruptStore(tmp_path / "runs.db")
        pair = pair_on(first)
        await pair.library.save("late", "return ['version 1', await tools.get_total({ week: 1 })]")
        await pair.library.save("rest", "yield_control(); return saved.late()")
        waits = await pair.exec.execute("return [await saved.rest(), await saved['la' + 'te']()]")
        await pair.library.save("late", "return 'version 2'")
        await pair.aclose()
        await first.aclose()
        other = SqliteInterruptStore(tmp_path / "runs.db")
        pair = pair_on(other)
        ended = await pair.wait.execute({"runId": waits["runId"]})
        await pair.aclose()
        await other.aclose()
        return ended["value"]

    assert within(main()) == [["version 1", 10], ["version 1", 10]]


def test_a_script_goes_on_with_its_versions():
    library = ProgramLibrary(MemoryInterruptStore())
    tool = create_code_call_tools(tools_with(), {"settings": PAUSES}, library=library)
    within(library.save("ask", "return callTool('refund', { id: 3 })"))
    within(library.save("late", "return 'version 1'"))
    pause = within(tool.execute("return [await saved.ask(), await saved.late()]"))
    within(library.save("late", "return 'version 2'"))
    within(library.disable("ask"))
    assert within(tool.resume(Interrupt.from_value(pause.to_dict()), True))["result"] == ["refunded 3", "version 1"]


def test_a_module_goes_on_with_its_versions():
    library = ProgramLibrary(MemoryInterruptStore())
    tool = create_modules_tool([ModuleServer("shop", tools=tools_with())], settings=PAUSES, library=library)
    within(library.save("ask", 'import { refund } from "@codemode/servers/shop";\nreturn refund({ id: 4 })'))
    code = 'import { ask } from "@codemode/saved";\nexport const result = [await ask(), await ask()];'
    pause = within(tool.execute(code))
    assert pause.requests[0].program == "ask:2"
    within(library.save("ask", "return 'version 2'"))
    pause = within(tool.resume(pause, True))
    assert within(tool.resume(pause, True))["result"] == ["refunded 4"] * 2


def test_a_journal_goes_on_with_its_versions():
    store = MemoryInterruptStore()
    library = ProgramLibrary(store)
    options = {
        "approval": {"mode": "interrupt"},
        "continuation": {**KEYS, "journal": store.journal(tenant="", app="a")},
    }
    tool = create_code_mode_tool(tools_with(), options, library=library)
    call = CallContext(tool_call_id="call", conversation_id="conversation")
    within(library.save("ask", "return tools.refund({ id: 5 })"))
    js = "return [await saved.ask(), 'end']"
    first = within(tool.execute(js, call))
    assert isinstance(first, Interrupt)
    within(library.save("ask", "return 'version 2'"))
    again = within(tool.execute(js, call))
    assert isinstance(again, Interrupt), "the journal knows that it waits"
    assert within(tool.resume(again, True, CallContext(conversation_id="conversation"))) == ["refunded 5", "end"]


def test_a_worker_without_the_library_leaves_a_pause_of_saved_programs_to_others():
    async def main() -> Any:
        async with MemoryInterruptStore() as store:
            library = ProgramLibrary(store)
            with_library = create_code_mode_tool(tools_with(), {"continuation": KEYS}, library=library, store=store)
            await library.save("late", "return 'late'")
            js = "return [await tools.refund({ id: 3 }), await saved.late()]"
            record_id = await store.put(await with_library.execute(js), tool=with_library)
            (request,) = (await store.record(record_id, tenant="")).requests
            for other, reason in (
                (None, r"no library of saved programs .* uses saved\.late"),
                (ProgramLibrary(store, owner="bob"), "the saved programs of another owner"),
            ):
                without = create_code_mode_tool(tools_with(), {"continuation": KEYS}, library=other, store=store)
                with pytest.raises(CodeModeProtocolError, match=reason) as refused:
                    await store.answer(request.interrupt_id, {"approved": True}, without.resume, tenant="")
                assert refused.value.details["not_resumable"] is True, reason
            return await store.answer(request.interrupt_id, {"approved": True}, with_library.resume, tenant="")

    assert within(main()) == ["refunded 3", "late"]
