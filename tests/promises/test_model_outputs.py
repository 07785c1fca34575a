"""What is kept to show a result beside its run: bounded in bytes, and never another run's."""

import asyncio

import pytest

from codemode import CallContext, Tool, create_code_mode_tool, tool
from codemode.surfaces.code_mode.model_output import MAX_RETAINED_BYTES

OUTPUTS = {"include_nested_tool_outputs": True}
CALL = "call_1"  # as models name their calls, in every conversation anew


def entries(code_mode, result, tool_call_id=None):
    return code_mode.to_model_output(result, tool_call_id=tool_call_id)["value"]["nestedTools"]


def tenant_tool(**options):
    async def execute(_input, context):
        return f"secret of {context.context}"

    return create_code_mode_tool([Tool("secret", execute=execute)], {"model_output": OUTPUTS, **options})


@pytest.mark.parametrize("value", ["({ ok: true })", "[1]", "'done'"])
def test_an_equal_value_under_an_equal_id_is_not_another_tenants_run(value):
    code_mode = tenant_tool()
    js = f"await tools.secret(); return {value}"
    theirs = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id=CALL, context="tenant A"))
    ours = code_mode.execute_sync({"js": f"return {value}"}, call=CallContext(tool_call_id=CALL, context="tenant B"))
    assert [one["output"]["value"] for one in entries(code_mode, theirs, CALL)] == ["secret of tenant A"]
    assert entries(code_mode, ours, CALL) == []
    copied = [*ours] if isinstance(ours, list) else "".join([*ours]) if isinstance(ours, str) else {**ours}
    assert entries(code_mode, copied, CALL) == []


@pytest.mark.parametrize("value", ["null", "true", "7"])
def test_values_that_are_one_object_belong_to_neither_of_two_runs(value):
    code_mode = tenant_tool()
    for tenant in ("A", "B"):
        result = code_mode.execute_sync(
            {"js": f"await tools.secret(); return {value}"}, call=CallContext(tool_call_id=CALL, context=tenant)
        )
    assert entries(code_mode, result, CALL) == []


def test_a_recorded_outcome_is_a_run_without_a_trace():
    @tool(needs_approval=True)
    def pay() -> int:
        return 1

    settings = {"model_output": OUTPUTS, "approval": {"mode": "interrupt"}}
    code_mode = create_code_mode_tool([pay], settings)
    interrupt = code_mode.execute_sync({"js": "await tools.pay(); return true"}, call=CallContext(tool_call_id=CALL))
    first = code_mode.resume_sync(interrupt, {"approved": True})
    assert len(entries(code_mode, first, CALL)) == 1
    again = code_mode.resume_sync(interrupt, {"approved": True})
    assert again is True
    assert entries(code_mode, again, CALL) == []


def test_what_is_kept_is_bounded_in_bytes():
    async def rows() -> list[str]:
        return ["x" * 1000] * 900

    code_mode = create_code_mode_tool([rows], {"model_output": OUTPUTS})

    async def runs():
        return [await code_mode.execute({"js": "return await tools.rows()"}) for _ in range(12)]

    results = asyncio.run(runs())
    kept = code_mode._output_formatter
    assert 0 < kept._retained_bytes <= MAX_RETAINED_BYTES
    assert sum(run.size for run in kept._runs) == kept._retained_bytes
    assert len(entries(code_mode, results[-1])) == 1
    assert entries(code_mode, results[0]) == []


def test_a_run_too_large_to_keep_still_counts_as_one():
    async def rows() -> list[str]:
        return ["x" * 1000] * 3000

    code_mode = create_code_mode_tool([rows], {"model_output": OUTPUTS})
    small = code_mode.execute_sync({"js": "return true"}, call=CallContext(tool_call_id=CALL))
    assert "nestedTools" in code_mode.to_model_output(small, tool_call_id=CALL)["value"]
    js = "await tools.rows(); await tools.rows(); return true"
    large = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id=CALL))
    assert entries(code_mode, large, CALL) == []


@pytest.mark.parametrize("value", ["null", "false", "7", "0.5", "''"])
def test_a_run_that_was_forgotten_still_counts_as_one(value):
    """Its caller asks late, when runs of other tenants have taken the room: none of them may answer for it."""

    async def rows(_input, context):
        return f"{context.context} " + "x" * (MAX_RETAINED_BYTES // 2)

    policy = {"max_tool_output_bytes": MAX_RETAINED_BYTES}
    options = {"model_output": OUTPUTS, "execution_policy": policy}
    code_mode = create_code_mode_tool([Tool("rows", execute=rows)], options)
    js = f"await tools.rows(); return {value}"
    theirs = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id=CALL, context="tenant A"))
    for number in range(3):
        code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id=f"other {number}", context="tenant C"))
    code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id=CALL, context="tenant B"))
    assert entries(code_mode, theirs, CALL) == []
    assert len(code_mode._output_formatter._runs) < 5


@pytest.mark.parametrize("value", ["null", "true", "7", "({ ok: true })", "'done'"])
def test_in_one_call_the_last_run_is_the_one_that_is_shown(value):
    one_call = tenant_tool().for_one_call()
    for tenant in ("A", "A again"):
        result = one_call.execute_sync(
            {"js": f"await tools.secret(); return {value}"}, call=CallContext(tool_call_id=CALL, context=tenant)
        )
    assert [one["output"]["value"] for one in entries(one_call, result, CALL)] == ["secret of A again"]
    other = one_call.for_one_call()
    assert entries(other, result, CALL) == []
    silent = other.execute_sync({"js": f"return {value}"}, call=CallContext(tool_call_id=CALL))
    assert entries(other, silent, CALL) == []


def test_in_one_call_an_outcome_that_was_recorded_shows_no_other_run():
    @tool(needs_approval=True)
    def pay() -> int:
        return 1

    settings = {"model_output": OUTPUTS, "approval": {"mode": "interrupt"}}
    one_call = create_code_mode_tool([pay], settings).for_one_call()
    interrupt = one_call.execute_sync({"js": "await tools.pay(); return true"}, call=CallContext(tool_call_id=CALL))
    assert len(entries(one_call, one_call.resume_sync(interrupt, {"approved": True}), CALL)) == 1
    assert entries(one_call, one_call.resume_sync(interrupt, {"approved": True}), CALL) == []
