"""Options of exec and wait: both spellings, clamping, and the path of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.surfaces.exec_wait.options import ExecWaitOptions, InvalidConfigError

RANGES: dict[str, tuple[int, int, int]] = {
    "timeoutMs": (10_000, 100, 60_000),
    "memoryLimitBytes": (64 << 20, 1 << 20, 1 << 30),
    "maxOutputBytes": (65_536, 1_024, 10 << 20),
    "maxSnapshotBytes": (10 << 20, 1_024, 256 << 20),
    "maxPendingToolCalls": (16, 1, 128),
    "snapshotTtlSeconds": (900, 1, 86_400),
    "searchDefaultLimit": (8, 1, 50),
    "maxSearchLimit": (50, 1, 50),
    "maxToolCalls": (4_096, 1, 100_000),
    "maxWaitingRuns": (64, 1, 10_000),
    "maxWarmRuns": (4, 0, 64),
}


def snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)


@pytest.mark.parametrize("name", RANGES)
@given(value=st.integers())
def test_a_number_out_of_range_is_clamped_in_both_spellings(name: str, value: int):
    default, least, most = RANGES[name]
    assert getattr(ExecWaitOptions(), snake(name)) == default
    for key in (name, snake(name)):
        assert getattr(ExecWaitOptions.of({key: value}), snake(name)) == min(max(value, least), most)


def test_a_scope_that_has_a_name_has_half_of_all_places_unless_it_says():
    shares = {(64, None, "a"): 32, (64, None, ""): 64, (1, None, "a"): 1, (8, 3, ""): 3, (8, 100, "a"): 8}
    for (places, share, scope), expected in shares.items():
        options = ExecWaitOptions(max_waiting_runs=places, max_waiting_runs_per_conversation=share)
        assert options.get_max_waiting_runs(scope) == expected, (places, share, scope)


def test_the_default_of_a_search_is_never_above_its_most():
    assert ExecWaitOptions(search_default_limit=20, max_search_limit=5).search_default_limit == 5


def test_a_wait_lasts_as_long_as_a_program_may_compute_unless_it_says():
    assert ExecWaitOptions(timeout_ms=500).effective_wait_timeout_ms == 500
    assert ExecWaitOptions(timeout_ms=500, wait_timeout_ms=10**9).effective_wait_timeout_ms == 600_000


WRONG: list[tuple[Any, str]] = [
    *(({name: value}, snake(name)) for name in RANGES for value in ("5", 5.0, True, None, [5])),
    ({"enabled": 1}, "enabled"),
    ({"enabled": "true"}, "enabled"),
    ({"runtime": "v8"}, "runtime"),
    ({"mode": "also"}, "mode"),
    ({"languages": []}, "languages"),
    ({"languages": "javascript"}, "languages"),
    ({"languages": ["python"]}, "languages"),
    ({"approvals": "ask"}, "approvals"),
    ({"approvals": ["park"]}, "approvals"),
    ({"hostErrorDetail": "all"}, "host_error_detail"),
    ({"waitTimeoutMs": "1"}, "wait_timeout_ms"),
    ({"timeout": 1}, "timeout"),
    ({"timeoutMs": 1, "timeout_ms": 1}, "timeout_ms"),
    ({1: 2}, "1"),
]


@each_row("config, path", WRONG)
def test_what_means_nothing_is_refused_with_its_path(config: Any, path: str):
    with pytest.raises(InvalidConfigError) as caught:
        ExecWaitOptions.of(config)
    assert caught.value.code == "invalid_config"
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(f"tools.codeMode.{path}")


@pytest.mark.parametrize("value", [1, "on", [], 0.5])
def test_a_configuration_is_true_false_or_a_mapping(value: Any):
    for given_config in (value, {"tools": {"codeMode": value}}):
        with pytest.raises(InvalidConfigError, match=r"tools\.codeMode must be"):
            ExecWaitOptions.from_config(given_config)
    with pytest.raises(InvalidConfigError, match="tools must be"):
        ExecWaitOptions.from_config({"tools": value})


@each_row(
    "config, is_enabled",
    [
        (None, False),
        (False, False),
        ({}, False),
        ({"timeoutMs": 500}, False),
        ({"enabled": False}, False),
        ({"tools": {}}, False),
        ({"tools": None}, False),
        ({"tools": {"codeMode": {}}}, False),
        (True, True),
        ({"enabled": True}, True),
        ({"tools": {"codeMode": True}}, True),
        ({"tools": {"codeMode": {"enabled": True}}}, True),
    ],
)
def test_only_true_enables(config: Any, is_enabled: bool):
    assert ExecWaitOptions.from_config(config).enabled is is_enabled


def test_an_agents_own_mapping_overrides_field_by_field_and_its_false_disables():
    base = {"tools": {"codeMode": {"enabled": True, "timeoutMs": 500, "maxWarmRuns": 1}}}
    options = ExecWaitOptions.from_config(base, {"timeout_ms": 700})
    assert (options.enabled, options.timeout_ms, options.max_warm_runs) == (True, 700, 1)
    assert ExecWaitOptions.from_config(base, False).enabled is False
    assert ExecWaitOptions.from_config(base, {"enabled": False}).enabled is False
    assert ExecWaitOptions.from_config(None, True).enabled is True
    assert ExecWaitOptions.from_config(base, None) == ExecWaitOptions.from_config(base)
