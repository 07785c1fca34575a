"""Options of `codemode.run`: which limits hold, and what is refused before anything runs."""

from __future__ import annotations

import pytest
from suite import each_row

from codemode.options.parts import MIB
from codemode.surfaces.modules.options import HOST_NAMES, WIRE_NAMES, RunCeilings, RunLimits, RunOptions

DEFAULTS = {
    "timeout_ms": 30_000,
    "max_memory_bytes": 64 * MIB,
    "max_log_bytes": 64 * 1024,
    "max_tool_calls": 256,
    "max_concurrent_tool_calls": 32,
    "max_result_bytes": 100_000,
}


def values(limits: RunLimits) -> dict[str, int]:
    return {option: getattr(limits, option) for option in WIRE_NAMES}


def test_the_defaults():
    options = RunOptions()
    assert values(options.limits) == DEFAULTS
    assert (options.max_description_characters, options.max_declarations_characters) == (4_000, 20_000)
    assert options.secrets == ()
    assert all(getattr(options.ceilings, option) >= DEFAULTS[option] for option in WIRE_NAMES)


def test_the_defaults_are_those_of_the_core_under_its_names():
    policy = RunLimits().to_policy()
    assert {option: getattr(policy, HOST_NAMES[option]) for option in WIRE_NAMES} == DEFAULTS


@each_row("option", WIRE_NAMES)
def test_keys_may_be_written_both_ways(option: str):
    value = DEFAULTS[option] // 2
    snake, camel = RunOptions(limits={option: value}), RunOptions.of({"limits": {WIRE_NAMES[option]: value}})
    assert values(snake.limits) == values(camel.limits) == {**DEFAULTS, option: value}
    assert getattr(snake.ceilings, option) == value  # who names a limit alone has named its ceiling


@each_row("option", WIRE_NAMES)
def test_a_ceiling_lowers_a_default_that_nobody_named(option: str):
    value = DEFAULTS[option] // 2
    options = RunOptions(ceilings={option: value})
    assert getattr(options.limits, option) == getattr(options.ceilings, option) == value


def test_a_limit_may_be_below_its_ceiling_and_not_above():
    options = RunOptions(limits={"timeout_ms": 10}, ceilings={"timeout_ms": 20})
    assert (options.limits.timeout_ms, options.ceilings.timeout_ms) == (10, 20)
    with pytest.raises(ValueError, match=r"limits\.timeout_ms must be at most ceilings\.timeout_ms \(20\), got 30"):
        RunOptions(limits={"timeout_ms": 30}, ceilings={"timeout_ms": 20})


@each_row(
    "given, said",
    [
        ({"limits": {"timeout_ms": 0}}, "limits.timeout_ms"),
        ({"limits": {"timeout_ms": True}}, "limits.timeout_ms"),
        ({"limits": {"max_memory_bytes": 1}}, "limits.max_memory_bytes"),
        ({"limits": {"maxMemoryBytes": 1 << 40}}, "limits.max_memory_bytes"),
        ({"limits": {"max_steps": 1}}, "limits.max_steps"),
        ({"limits": 5}, "limits"),
        ({"ceilings": {"max_tool_calls": "9"}}, "ceilings.max_tool_calls"),
        ({"ceilings": []}, "ceilings"),
        ({"max_description_characters": 0}, "max_description_characters"),
        ({"maxDeclarationsCharacters": "1"}, "max_declarations_characters"),
        ({"secrets": "abc"}, "secrets"),
        ({"secrets": [""]}, "secrets"),
        ({"timeout_ms": 1}, "timeout_ms"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        RunOptions.of(given)


def test_secrets_are_not_shown():
    options = RunOptions(secrets=["abc", "abcdef"])
    assert options.secrets == ("abcdef", "abc")
    assert "abc" not in repr(options)
    with pytest.raises(ValueError, match="secrets") as raised:
        RunOptions(secrets=["abc", ""])
    assert "abc" not in str(raised.value)


def test_ceilings_of_their_own_defaults():
    assert values(RunCeilings.of({})) == values(RunOptions().ceilings)
