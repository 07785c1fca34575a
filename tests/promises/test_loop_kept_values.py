"""What was decoded for a call is let go of with it: nothing of a run keeps values beside the ledger's texts."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from waiting import within

from codemode import CodeModeError, Tool, create_code_mode_tool
from codemode.execution.nested_call import NestedCalls
from codemode.execution.runner import clear_tracebacks

# Who hears of failures gets them instead of the log, and here it is the log that would keep them: pytest's.
TOLD = {"lifecycle": {"on_nested_tool_result": lambda _event: None}}


@pytest.fixture(autouse=True)
def only_what_is_new():
    """Leave out of every look at the heap what other tests have left on it: there may be millions of objects."""
    gc.collect()
    gc.freeze()


class Marked(list):
    """A value that can be told from others."""


class Counted:
    """How many values of failed calls were alive at the worst moment."""

    def __init__(self) -> None:
        self.most = 0

    def look(self) -> None:
        gc.collect()
        self.most = max(self.most, sum(isinstance(one, Marked) for one in gc.get_objects()))


def failing(counted: Counted, how: type[BaseException]) -> Tool:
    async def fail(_value: Any) -> None:
        value = Marked([1])
        counted.look()
        raise how(f"failed with {len(value)}")

    return Tool("fail", execute=fail)


def giving(counted: Counted) -> Tool:
    async def fail(_value: Any) -> Any:
        counted.look()
        return Marked([object()])

    return Tool("fail", execute=fail)


@pytest.mark.parametrize("how", [ValueError, CodeModeError])
def test_loop_caught_errors_do_not_keep_what_their_calls_held(how):
    counted = Counted()
    js = "for (let i = 0; i < 40; i++) try { await tools.fail({ i }) } catch {} return 'ok'"
    assert within(create_code_mode_tool([failing(counted, how)], TOLD).execute({"js": js})) == "ok"
    assert counted.most <= 6


@pytest.mark.full
def test_loop_outputs_that_were_refused_are_not_kept():
    counted = Counted()
    js = "for (let i = 0; i < 40; i++) try { await tools.fail({ i }) } catch {} return 'ok'"
    assert within(create_code_mode_tool([giving(counted)], TOLD).execute({"js": js})) == "ok"
    assert counted.most <= 6


@pytest.mark.full
def test_loop_the_last_errors_keep_their_tracebacks():
    counted = Counted()
    js = "try { await tools.fail(1) } catch {} await tools.fail(2)"
    with pytest.raises(CodeModeError) as caught:
        within(create_code_mode_tool([failing(counted, ValueError)]).execute({"js": js}))
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.__traceback__ is not None


def test_loop_large_inputs_of_failed_calls_are_not_kept():
    sizes: list[int] = []

    async def fail(_value: Any) -> None:
        calls = [one for one in gc.get_objects() if isinstance(one, NestedCalls) and not one.aborted.is_set()]
        sizes.append(max(len(one.saved_inputs) for one in calls))
        raise ValueError("failed")

    js = "for (let i = 0; i < 9; i++) try { await tools.fail({ text: 'x'.repeat(9000) }) } catch {} return 'ok'"
    tool = Tool("fail", execute=fail, input_schema={"type": "object"})
    assert within(create_code_mode_tool([tool]).execute({"js": js})) == "ok"
    assert max(sizes) <= 1


def test_loop_causes_contexts_and_groups_lose_their_tracebacks_however_they_hang_together():
    def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
        try:
            raise error from cause
        except BaseException as caught:
            return caught

    inner = raised(ValueError("inner"))
    group = raised(ExceptionGroup("group", [inner, raised(KeyError("other"))]))
    outer = raised(RuntimeError("outer"), group)
    inner.__context__ = outer
    clear_tracebacks(outer)
    assert [one.__traceback__ for one in (outer, group, *group.exceptions)] == [None] * 4
