"""Saving programs: `saved.$save` always asks a person, and shows what would be kept; export and import by the host."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from test_saved_programs import PAUSES, REPORT, WEEK, get_total, library_with, refused, run, tools_with
from waiting import within

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeToolError,
    Interrupt,
    ModuleServer,
    ProgramLibrary,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.errors import CodeModeSyntaxError
from codemode.execution.saved_programs import SavedProgramCatalog
from codemode.stores import MemoryInterruptStore
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools

SAVE = """return await saved.$save({ name: "report", description: "Adds one.", inputSchema: %s, program: %r });"""
SAVE_REPORT = SAVE % ('{ type: "object", properties: { week: { type: "integer" } } }', REPORT)


def saving(store: Any = None) -> ProgramLibrary:
    return ProgramLibrary(store or MemoryInterruptStore(), model_saves=True)


def test_a_program_is_saved_once_a_person_has_seen_it():
    library = saving()
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    pause = within(tool.execute(SAVE_REPORT))
    assert isinstance(pause, Interrupt)
    shown = pause.requests[0].input
    assert (shown["program"], shown["tools"], shown["difference"]) == (REPORT, ["get_total"], "")
    assert within(library.list()) == []
    assert within(tool.resume(pause, True)) == {"name": "report", "version": 1}
    assert within(library.get("report")).current.saved_by == "model"
    assert run(library, "return await saved.report({ week: 4 })") == 41


def test_a_person_sees_the_difference_from_the_version_before():
    library = saving()
    within(library.save("report", "return 1", description="Gives one."))
    pause = run(library, SAVE_REPORT)
    shown = pause.requests[0].input
    assert "-return 1" in shown["difference"]
    assert "+Adds one." in shown["difference"]
    assert shown["replaces"] == 1


def test_an_older_version_that_was_restored_is_what_is_replaced():
    library = saving()
    for text in ("return 1", "return 2"):
        within(library.save("report", text))
    within(library.restore("report", 1))
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    pause = within(tool.execute(SAVE_REPORT))
    assert "-return 1" in pause.requests[0].input["difference"]
    assert within(tool.resume(pause, True)) == {"name": "report", "version": 3}


def test_what_was_saved_meanwhile_is_not_replaced_unseen():
    library = saving()
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    pause = within(tool.execute(SAVE_REPORT))
    within(library.save("report", "return 'of the host'"))
    with pytest.raises(CodeModeToolError, match="version 1 now"):
        within(tool.resume(pause, True))
    assert run(library, "return await saved.report()") == "of the host"


def test_a_denied_program_is_not_saved():
    library = saving()
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    pause = within(tool.execute(SAVE_REPORT))
    with pytest.raises(CodeModeError, match="denied"):
        within(tool.resume(pause, False))
    assert within(library.list()) == []


def test_a_callback_is_asked_and_without_one_saving_is_refused():
    asked: list[Any] = []

    def decide(request: Any) -> str:
        asked.append(request.input)
        return "approved"

    library = saving()
    options = {"approval": {"mode": "callback", "on_approval_required": decide}}
    assert run(library, SAVE_REPORT, options=options) == {"name": "report", "version": 1}
    assert [one["program"] for one in asked] == [REPORT]
    with pytest.raises(CodeModeError, match="needs approval"):
        run(saving(), SAVE_REPORT, options={"approval": {"mode": "callback"}})


def test_programs_save_nothing_where_the_host_has_not_allowed_it():
    library = library_with({})
    assert "the host has not allowed it" in refused(library, SAVE_REPORT)
    assert "$save" not in create_code_mode_tool(tools_with(), library=library).description


def test_a_person_is_never_shown_anything_untrue():
    library = saving()
    forged = {"name": "x", "description": "", "inputSchema": None, "program": "return tools.get_total(input)"}
    forged |= {"tools": [], "difference": "", "replaces": 0}
    text = refused(library, f"saved; return await saved.$save({forged!r})".replace("None", "null"))
    assert "Invalid input" in text
    with pytest.raises(CodeModeError, match="called as saved"):
        run(library, f"saved; const t = tools; return await t.saved.$save({forged!r})".replace("None", "null"))
    catalog: Any = SavedProgramCatalog(
        Catalog(collect_tools(tools_with())), library, None, CallContext(), None, None, {}
    )
    save = catalog.get("saved.$save")  # as a worker that is no longer ours may call it
    with pytest.raises(CodeModeToolError, match="does not match the program"):
        within(save.evaluate_needs_approval(forged, None))


def test_a_program_that_is_none_is_refused_before_a_person_is_asked():
    for program in ("return (", "import fs from 'fs'"):
        with pytest.raises(CodeModeSyntaxError):
            run(saving(), SAVE % ("null", program))
    with pytest.raises(CodeModeError, match="name"):
        run(saving(), "return await saved.$save({ name: 'then', description: '', program: 'return 1' })")


def test_what_is_wrong_with_a_program_to_save_is_said_of_it_and_not_of_the_program_that_saves():
    with pytest.raises(CodeModeSyntaxError, match=r"saved\.report: line 1, column 9") as caught:
        run(saving(), "\n" + SAVE % ("null", "return ("))
    assert caught.value.details["line"] == 2  # of the call of $save


def test_sloppy_arguments_of_a_library_are_taken_or_named():
    library = library_with({"double": "return input.n * 2"})
    for name, near in (("weekly-report", "weekly_report"), ("Wöchentlicher Bericht", "Wochentlicher_Bericht")):
        with pytest.raises(ValueError, match=f"use '{near}'"):
            within(library.save(name, "return 1"))
    for schema in ({"default": float("nan")}, {"enum": {1, 2}}):
        with pytest.raises(ValueError, match=r"saved\.double: the input schema is not JSON"):
            within(library.save("double", "return 1", input_schema=schema))
    assert [one["name"] for one in within(library.export("double"))["programs"]] == ["double"]
    none: Any = None
    with pytest.raises(ValueError, match="for_owner takes the owner as text, got None"):
        library.for_owner(none)


def test_a_description_of_null_is_none():
    save = "return saved.$save({ name: 'one', description: null, program: 'return 1' })"
    assert run(saving(), save).requests[0].input["description"] == ""
    none: Any = None
    assert within(saving().save("one", "return 1", description=none)).description == ""


def test_saving_works_where_one_worker_is_all_there_is():
    with closing(WorkerPool({"max_workers": 1, "spare_workers": 0})) as pool:
        library = saving()
        tool = create_code_mode_tool(tools_with(), PAUSES, library=library, pool=pool)
        pause = within(tool.execute(SAVE_REPORT))
        assert within(tool.resume(pause, True)) == {"name": "report", "version": 1}


def test_every_surface_saves_and_resumes():
    tools = {"get_total": get_total}
    library = saving()
    code_call = create_code_call_tools(tools, {"settings": PAUSES}, library=library)
    pause = within(code_call.execute(SAVE_REPORT))
    assert within(code_call.resume(pause, True))["result"] == {"name": "report", "version": 1}
    module = create_modules_tool([ModuleServer("shop", tools=tools)], settings=PAUSES, library=saving())
    program = 'import { get_total } from "@codemode/servers/shop";\nreturn await get_total({ week: 2 })'
    code = 'import { $save } from "@codemode/saved";\nexport const result = await $save({ name: "two", description: "",'
    pause = within(module.execute(f"{code} program: {program!r} }});"))
    assert pause.requests[0].input["tools"] == ["shop.get_total"]
    assert within(module.resume(pause, True))["result"] == {"name": "two", "version": 1}
    assert within(module.execute("export const result = await saved.two();"))["result"] == 20
    pair = create_exec_wait_tools(tools, library=saving())
    pause = within(pair.exec.execute(SAVE_REPORT))
    assert within(pair.resume(pause, True))["value"] == {"name": "report", "version": 1}
    assert within(pair.exec.execute("return await saved.report({ week: 4 })"))["value"] == 41
    within(pair.aclose())


def test_an_export_is_imported_with_what_it_was_pinned_to():
    library = library_with({"report": REPORT, "other": "return 2"})
    run(library, "return await saved.report({ week: 4 })")
    exported = within(library.export(["report"]))
    copy = library_with({}, owner="copy")
    (version,) = within(copy.import_(exported, by="ann"))
    assert (version.name, version.version, version.saved_by) == ("report", 1, "ann")
    assert version.tools == ("get_total",)
    assert version.input_schema == WEEK
    assert "stale" in refused(copy, "return await saved.report({ week: 4 })", {"get_total": lambda week: week})
    for wrong in ({}, {"format": "x", "programs": []}, {**exported, "programs": 1}):
        with pytest.raises(ValueError, match="no export"):
            within(copy.import_(wrong))
    with pytest.raises(ValueError, match="name"):
        within(copy.import_({**exported, "programs": [*exported["programs"], {"name": "then", "program": "return 1"}]}))
    assert len(within(copy.history("report"))) == 1


def test_history_and_differences_of_versions():
    library = library_with({"report": "return 1"})
    within(library.save("report", "return 2", by="ann"))
    assert [(one.version, one.saved_by) for one in within(library.history("report"))] == [(2, "ann"), (1, "host")]
    assert "-return 1\n+return 2" in within(library.difference("report"))
    assert within(library.difference("report", 1)) == ""
    within(library.restore("report", 1))
    assert run(library, "return await saved.report()") == 1
    for missing in (library.history("nope"), library.difference("report", 9), library.get("nope")):
        with pytest.raises(LookupError):
            within(missing)


def test_a_program_says_which_invocation_it_was_made_of():
    traces: list[Any] = []
    library = library_with({})
    run(library, "return 1", options={"lifecycle": {"on_trace": traces.append}})
    kept = within(library.save("one", "return 1", created_from=traces[0]))
    assert kept.created_from == traces[0].invocation_id
    with pytest.raises(CodeModeError):
        run(library, "throw new Error('no')", options={"lifecycle": {"on_trace": traces.append}})
    with pytest.raises(ValueError, match="is failed"):
        within(library.save("two", "return 1", created_from=traces[1]))
