"""Options of CodeCall: presets and what overrides them, mappings in both spellings, and the path of what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from suite import each_row

from codemode import CodeCallOptions, CodeModeOptions, ExecutionPolicy, Tool, create_code_call_tools
from codemode.surfaces.code_call.options import VmOptions
from codemode.surfaces.code_call.result import create_surface_settings

STRICT = ("require", "process", "fetch", "setTimeout", "setInterval", "setImmediate", "global", "globalThis")
BUILTINS = ("eval", "Function", "AsyncFunction")
PRESETS = {
    "locked_down": (2_000, 2_000, False, False, STRICT, 10, 1_000),
    "secure": (3_500, 5_000, False, True, STRICT, 50, 2_000),
    "balanced": (5_000, 10_000, True, True, ("require", "process", "fetch"), 50, 5_000),
    "experimental": (10_000, 20_000, True, True, ("require", "process"), 100, 20_000),
}
FIELDS = [field.name for field in dataclasses.fields(VmOptions)]
ELSEWHERE = [
    ("pipeline", "settings.pipeline"),
    ("approval", "settings.approval"),
    ("executionPolicy", "settings.execution_policy"),
    ("timeoutMs", "vm.timeout_ms"),
    ("preset", "vm.preset"),
    ("maxTotalSize", "sidecar.max_total_size"),
    ("embed", "search.embed"),
    ("embedding", "search.embed"),
    ("topp", "top_k"),
]
EXAMPLE = {"description": "a", "input": {}}
ECHO = Tool("echo", execute=lambda value: value)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_what_the_table_says(preset: str):
    vm = VmOptions(preset=preset)
    said = vm.timeout_ms, vm.max_steps, vm.allow_loops, vm.allow_console, vm.disabled_globals
    assert (*said, vm.max_sanitize_depth, vm.max_sanitize_properties) == PRESETS[preset]
    assert vm.disabled_builtins == BUILTINS


def test_secure_is_the_default():
    assert CodeCallOptions().vm == VmOptions(preset="secure")


@each_row("preset", PRESETS)
@each_row(
    "key, value",
    [
        ("timeoutMs", 77),
        ("maxSteps", 3),
        ("allowLoops", True),
        ("allowLoops", False),
        ("allowConsole", False),
        ("disabledGlobals", ["WeakRef", "$"]),
        ("disabledGlobals", []),
        ("maxSanitizeDepth", 2),
        ("maxSanitizeProperties", 9),
        ("checkTools", False),
    ],
)
def test_each_field_overrides_its_own_alone(preset: str, key: str, value: Any):
    vm = CodeCallOptions.of({"vm": {"preset": preset, key: value}}).vm
    plain = VmOptions(preset=preset)
    differing = {name for name in FIELDS if getattr(vm, name) != getattr(plain, name)}
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in key)
    assert differing <= {snake}
    assert getattr(vm, snake) == (tuple(value) if isinstance(value, list) else value)


def test_eval_and_function_stay_banned():
    assert VmOptions(disabled_builtins=()).disabled_builtins == ("eval", "Function")
    assert VmOptions(disabled_builtins=("WeakMap", "eval")).disabled_builtins == ("eval", "Function", "WeakMap")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"vm": {"preset": "safe"}}, "vm.preset"),
    ({"vm": {"timeoutMs": 0}}, "vm.timeout_ms"),
    ({"vm": {"timeoutMs": True}}, "vm.timeout_ms"),
    ({"vm": {"maxSteps": -1}}, "vm.max_steps"),
    ({"vm": {"allowLoops": "yes"}}, "vm.allow_loops"),
    ({"vm": {"allow_console": 1}}, "vm.allow_console"),
    ({"vm": {"disabledGlobals": "fetch"}}, "vm.disabled_globals"),
    ({"vm": {"disabledGlobals": ["a b"]}}, "vm.disabled_globals"),
    ({"vm": {"disabledGlobals": ["x){}//"]}}, "vm.disabled_globals"),
    ({"vm": {"disabledGlobals": ["while"]}}, "vm.disabled_globals"),
    ({"vm": {"disabledBuiltins": ["a.b"]}}, "vm.disabled_builtins"),
    ({"vm": {"disabledBuiltins": ["1a"]}}, "vm.disabled_builtins"),
    ({"vm": {"maxSanitizeDepth": 101}}, "vm.max_sanitize_depth"),
    ({"vm": {"maxSanitizeProperties": 0}}, "vm.max_sanitize_properties"),
    ({"vm": {"presets": "secure"}}, "vm.presets"),
    ({"vm": "secure"}, "vm"),
    ({"mode": "everything"}, "mode"),
    ({"topK": 0}, "top_k"),
    ({"topK": 51}, "top_k"),
    ({"maxDefinitions": "8"}, "max_definitions"),
    ({"includeTools": True}, "include_tools"),
    ({"appIds": "a"}, "app_ids"),
    ({"appIds": [1]}, "app_ids"),
    ({"directCalls": True}, "direct_calls"),
    ({"directCalls": {"enabled": 1}}, "direct_calls.enabled"),
    ({"directCalls": {"allowedTools": "a"}}, "direct_calls.allowed_tools"),
    ({"directCalls": {"filter": 3}}, "direct_calls.filter"),
    ({"sidecar": {"enabled": None}}, "sidecar.enabled"),
    ({"sidecar": {"maxTotalSize": -1}}, "sidecar.max_total_size"),
    ({"sidecar": {"maxReferenceSize": 1.5}}, "sidecar.max_reference_size"),
    ({"sidecar": {"extractionThreshold": 0}}, "sidecar.extraction_threshold"),
    ({"sidecar": {"maxResolvedSize": "1"}}, "sidecar.max_resolved_size"),
    ({"sidecar": {"allowComposites": 0}}, "sidecar.allow_composites"),
    ({"sidecar": {"maxScriptLengthWhenDisabled": 0}}, "sidecar.max_script_length_when_disabled"),
    ({"search": {"embed": "model"}}, "search.embed"),
    ({"search": {"strategy": object()}}, "search.strategy"),
    ({"search": {"embedding": None}}, "search.embedding"),
    ({"names": "dots"}, "names"),
    ({"toolErrors": "all"}, "tool_errors"),
    ({"notify": []}, "notify"),
    ({"settings": {"fetch_policy": {}}}, "settings.fetch_policy"),
    ({"settings": {"executionPolicy": {"timeoutMs": 0}}}, "settings.execution_policy.timeout_ms"),
    ({"settings": {"approvals": {}}}, "settings.approvals"),
    ({"settings": 3}, "settings"),
    ({"reservedPrefixes": ["a", ""]}, "reserved_prefixes"),
    ({"vms": {}}, "vms"),
    ({"topK": 3, "top_k": 4}, "top_k"),
]


@each_row("options, path", BAD)
def test_what_is_wrong_is_told_with_its_path(options: dict[str, Any], path: str):
    with pytest.raises(ValueError, match=rf"^{path}[ :]"):
        create_code_call_tools([ECHO], options)


@each_row(
    "metadata, path",
    [
        (3, ""),
        ([], ""),
        ({"tags": "a"}, ".tags"),
        ({"tags": [1]}, ".tags"),
        ({"visibleInListTools": "yes"}, ".visible_in_list_tools"),
        ({"enabledInCodeCall": 1}, ".enabled_in_code_call"),
        ({"appId": ""}, ".app_id"),
        ({"source": 3}, ".source"),
        ({"examples": {}}, ".examples"),
        ({"examples": [{}]}, r".examples\[0\]"),
        (
            {"examples": [{"description": "a", "input": {}}, {"description": 3, "input": {}}]},
            r".examples\[1\].description",
        ),
        ({"enabled": True}, ".enabled"),
    ],
)
def test_metadata_that_is_wrong_is_told_with_its_path(metadata: Any, path: str):
    tool = Tool("shop:list", execute=None, metadata={"codecall": metadata})
    with pytest.raises(ValueError, match=rf'^tools\["shop:list"\]\.metadata\.codecall{path} '):
        create_code_call_tools([tool])


@each_row("key, path", ELSEWHERE)
def test_an_option_at_the_wrong_place_is_told_the_right_one(key: str, path: str):
    with pytest.raises(ValueError, match=rf"^{key} is not an option; did you mean '{path}'\?"):
        CodeCallOptions.of({key: {}})


@pytest.mark.parametrize("key", ["enabled", "fetchPolicy", "colour"])
def test_an_option_that_stands_nowhere_is_told_what_there_is(key: str):
    with pytest.raises(ValueError, match=f"^{key} is not an option; known are app_ids, "):
        CodeCallOptions.of({key: {}})


def test_settings_are_those_of_the_other_faces_but_for_what_vm_decides():
    settings = CodeModeOptions(execution_policy=ExecutionPolicy(timeout_ms=9, max_bridge_requests=9, max_values=77))
    tools = create_code_call_tools([ECHO], {"settings": settings, "vm": {"timeoutMs": 50, "maxSteps": 4}})
    policy = tools._settings.with_default_limits(tools._profile.limits).execution_policy
    assert (policy.timeout_ms, policy.max_bridge_requests, policy.max_values, policy.timeout_includes_tools) == (
        50,
        4,
        77,
        False,
    )
    wall = create_code_call_tools([ECHO], {"settings": {"execution_policy": {"timeout_includes_tools": True}}})
    assert wall._settings.with_default_limits(wall._profile.limits).execution_policy.timeout_includes_tools


@each_row(
    "options, most",
    [
        ({}, 65_536),
        ({"sidecar": {"maxScriptLengthWhenDisabled": 100}}, 100),
        ({"sidecar": {"maxScriptLengthWhenDisabled": 500_000}}, 500_000),
        ({"sidecar": {"maxScriptLengthWhenDisabled": None}}, 262_144),
        ({"sidecar": {"enabled": True}}, 262_144),
        ({"settings": {"execution_policy": {"max_source_bytes": 99}}}, 99),
    ],
)
def test_how_long_a_script_may_be(options: dict[str, Any], most: int):
    assert create_surface_settings(CodeCallOptions.of(options)).limits.max_source_bytes == most


# --- the profile that they make ---


def test_the_profile_of_the_defaults_has_no_parameters():
    profile = create_surface_settings(CodeCallOptions())
    assert profile.parameters == {}
    assert profile.static_rules.refuses_unanalysed
    assert profile.request_kinds == {"tool"}
    assert profile.outer_tool == "codecall.execute"


@each_row("preset", PRESETS)
@each_row("more", [{}, {"disabledGlobals": ["a"]}, {"allowConsole": False, "maxSteps": 7}, {"checkTools": False}])
def test_a_profile_comes_back_from_its_parameters(preset: str, more: dict[str, Any]):
    options = CodeCallOptions.of({"vm": {"preset": preset, **more}, "tool_errors": "message"})
    profile, other = (
        create_surface_settings(options),
        create_surface_settings(CodeCallOptions(vm={"preset": "experimental"})),
    )
    assert other.restored is not None
    assert dataclasses.replace(other.restored(profile.parameters), restored=None) == dataclasses.replace(
        profile, restored=None
    )


@pytest.mark.parametrize("parameters", [{"what": 1}, {"timeout_ms": "long"}, {"disabled_globals": 3}, {"max_steps": 0}])
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, Any]):
    restored = create_surface_settings(CodeCallOptions()).restored
    assert restored is not None
    with pytest.raises((ValueError, TypeError)):
        restored(parameters)


def test_a_console_that_is_off_is_a_banned_name():
    profile = create_surface_settings(CodeCallOptions.of({"vm": {"allowConsole": False}}))
    assert "console" in profile.static_rules.disabled_globals
    assert "console" not in profile.guest.globals
    banned = create_surface_settings(CodeCallOptions.of({"vm": {"disabledGlobals": ["console"]}}))
    assert "console" not in banned.guest.globals
