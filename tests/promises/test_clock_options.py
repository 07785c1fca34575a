import copy
import pickle

import pytest

from codemode import CodeModeOptions, ExecutionPolicy, PoolOptions


@pytest.mark.parametrize("wrong", ["program", "", None, 0, 1, [True]])
def test_what_is_no_bool_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^execution_policy\.timeout_includes_tools must be True or False, got "):
        CodeModeOptions(execution_policy={"timeout_includes_tools": wrong})


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "5", True, [1]])
def test_a_tool_timeout_is_a_positive_integer_or_none(wrong):
    with pytest.raises(ValueError, match=r"^execution_policy\.tool_timeout_ms must be a positive integer, got "):
        CodeModeOptions(execution_policy={"toolTimeoutMs": wrong})
    assert ExecutionPolicy(tool_timeout_ms=None).tool_timeout_ms is None
    assert ExecutionPolicy(tool_timeout_ms=1).tool_timeout_ms == 1


@pytest.mark.parametrize("wrong", ["queue", True, 0, ["wait"]])
def test_an_unknown_wish_to_wait_is_refused(wrong):
    said = r"^execution_policy\.on_saturation must be one of None, 'fail', 'wait', got "
    with pytest.raises(ValueError, match=said):
        CodeModeOptions(execution_policy={"onSaturation": wrong})
    for right in (None, "fail", "wait"):
        assert ExecutionPolicy(on_saturation=right).on_saturation == right


def test_a_plugin_has_defaults_of_its_own_for_what_was_not_said():
    unsaid = ExecutionPolicy(timeout_ms=5).with_defaults(timeout_includes_tools=False, on_saturation="wait")
    assert (unsaid.timeout_ms, unsaid.timeout_includes_tools, unsaid.on_saturation) == (5, False, "wait")
    said = ExecutionPolicy.of({"timeout_includes_tools": True, "onSaturation": None})
    assert said.with_defaults(timeout_includes_tools=False, on_saturation="wait") == said
    both = (
        ExecutionPolicy()
        .with_defaults(timeout_includes_tools=False)
        .with_defaults(timeout_includes_tools=True, on_saturation="wait")
    )
    assert (both.timeout_includes_tools, both.on_saturation) == (False, "wait")
    with pytest.raises(ValueError, match=r"^execution_policy\.timeout_includes_tools"):
        ExecutionPolicy().with_defaults(timeout_includes_tools="sundial")


@pytest.mark.parametrize("kept", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_what_was_said_survives_a_copy(kept):
    said = kept(ExecutionPolicy(timeout_includes_tools=True))
    assert said == ExecutionPolicy()
    assert said.with_defaults(timeout_includes_tools=False, timeout_ms=7) == ExecutionPolicy(timeout_ms=7)
    assert kept(PoolOptions(max_workers=3)) == PoolOptions(max_workers=3)
