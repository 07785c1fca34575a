import dataclasses

import pytest
from suite import each_row

from codemode.options import checked_fields
from codemode.options.parts import (
    ApprovalPolicy,
    CodeModeOptions,
    ContinuationOptions,
    ExecutionPolicy,
    FetchPolicy,
    LargeHeapPolicy,
    Lifecycle,
    ModelOutput,
    PoolOptions,
    Telemetry,
)
from codemode.surfaces.code_call.registered_tool import UsageExample

NO_LIMITS = {
    "in_flight_limit",
    "listing",
    "check_program",
    "timeout_includes_tools",
    "tool_timeout_ms",
    "on_saturation",
}
NO_LIMITS |= {"output_validation", "values"}
LIMITS = [option.name for option in dataclasses.fields(ExecutionPolicy) if option.name not in NO_LIMITS]


def test_defaults_are_the_documented_ones():
    policy = CodeModeOptions().execution_policy
    assert dataclasses.asdict(policy) == {
        "timeout_ms": 30_000,
        "memory_limit_bytes": 67_108_864,
        "max_stack_size_bytes": 2_097_152,
        "max_result_bytes": 1_048_576,
        "max_source_bytes": 262_144,
        "max_tool_input_bytes": 1_048_576,
        "max_tool_output_bytes": 4_194_304,
        "max_values": 250_000,
        "max_bridge_requests": 256,
        "max_in_flight_bridge_requests": 32,
        "in_flight_limit": "fail",
        "max_console_bytes": 65_536,
        "max_ledger_bytes": 134_217_728,
        "max_catalog_requests": 64,
        "max_content_part_bytes": 16 << 20,
        "max_content_bytes": 64 << 20,
        "max_content_parts": 64,
        "max_description_characters": 40_000,
        "listing": "full",
        "check_program": True,
        "timeout_includes_tools": True,
        "tool_timeout_ms": None,
        "on_saturation": None,
        "output_validation": "warn",
        "values": "json",
    }
    assert CodeModeOptions().fetch_policy is None
    assert CodeModeOptions().approval.mode == "callback"
    assert FetchPolicy().allowed_methods == ("GET", "HEAD")
    assert (FetchPolicy().max_response_bytes, FetchPolicy().max_redirects) == (1_048_576, 10)
    assert (FetchPolicy().allow_redirects, Telemetry().is_enabled, Telemetry().record_inputs) == (False, False, True)
    assert ModelOutput().max_summary_entries == 32
    assert PoolOptions().on_saturation == "fail"


@each_row("name", LIMITS)
@each_row("wrong", [0, -1, 1.5, 5.0, "5", True, None, [1]])
def test_a_limit_is_a_positive_integer(name, wrong):
    with pytest.raises(ValueError, match=rf"^execution_policy\.{name} must be a positive integer"):
        CodeModeOptions(execution_policy={name: wrong})


def test_the_engine_needs_some_memory():
    assert ExecutionPolicy(memory_limit_bytes=1 << 20).memory_limit_bytes == 1 << 20
    with pytest.raises(ValueError, match=r"execution_policy\.memory_limit_bytes must be at least 1048576, got 1048575"):
        ExecutionPolicy(memory_limit_bytes=(1 << 20) - 1)


@pytest.mark.parametrize(
    ("name", "maximum"),
    [
        ("max_source_bytes", 1_000_000),
        ("memory_limit_bytes", 768 * 1024 * 1024),
        ("max_stack_size_bytes", 6 * 1024 * 1024),
    ],
)
def test_some_limits_have_a_maximum(name, maximum):
    assert getattr(ExecutionPolicy(**{name: maximum}), name) == maximum
    with pytest.raises(ValueError, match=rf"execution_policy\.{name} must be at most {maximum}"):
        ExecutionPolicy(**{name: maximum + 1})


def test_a_surface_with_larger_heaps_has_a_range_of_its_own():
    largest = LargeHeapPolicy(memory_limit_bytes=1 << 30)
    with pytest.raises(ValueError, match=rf"memory_limit_bytes must be at most {1 << 30}"):
        LargeHeapPolicy(memory_limit_bytes=(1 << 30) + 1)
    options = CodeModeOptions(execution_policy={"max_values": 7}).with_default_limits(largest)
    policy = options.execution_policy
    assert (type(policy), policy.memory_limit_bytes, policy.max_values) == (LargeHeapPolicy, 1 << 30, 7)
    assert policy.is_set_explicitly("max_values")
    assert not policy.is_set_explicitly("timeout_ms")


def test_a_signing_key_that_can_be_guessed_is_warned_of_once(caplog):
    checked_fields._warn_short_key.cache_clear()
    long = b"0" * checked_fields.MIN_KEY_BYTES
    CodeModeOptions.of({"continuation": {"keys": [long, long.decode()]}})
    assert "fewer than" not in caplog.text
    for _ in range(2):
        CodeModeOptions.of({"continuation": {"keys": [long[1:], long]}})
    (told,) = [one for one in caplog.messages if "fewer than 16 bytes" in one]
    assert "secrets.token_urlsafe(32)" in told
    assert "000" not in told


@each_row(
    "given, said",
    [
        ({"fetch_policy": {"max_redirects": 0}}, "fetch_policy.max_redirects must be a positive integer"),
        ({"fetch_policy": {"fetch": 3}}, "fetch_policy.fetch must be a function or None"),
        ({"fetch_policy": {"allowed_origins": "https://a"}}, "fetch_policy.allowed_origins must be a list"),
        ({"fetch_policy": {"allowed_methods": [""]}}, "fetch_policy.allowed_methods must be a list"),
        ({"fetch_policy": True}, "fetch_policy must be a FetchPolicy or a mapping"),
        ({"approval": {"mode": "ask"}}, "approval.mode must be one of 'callback', 'interrupt', got 'ask'"),
        ({"approval": {"mode": []}}, "approval.mode must be one of"),
        ({"approval": {"on_approval_required": "yes"}}, "approval.on_approval_required must be a function"),
        ({"telemetry": {"is_enabled": 1}}, "telemetry.is_enabled must be True or False"),
        ({"telemetry": {"metadata": []}}, "telemetry.metadata must be a mapping"),
        ({"telemetry": {"function_id": 5}}, "telemetry.function_id must be a non-empty string"),
        ({"model_output": {"max_summary_entries": "3"}}, "model_output.max_summary_entries must be an integer"),
        ({"lifecycle": {"on_trace": {}}}, "lifecycle.on_trace must be a function or None"),
        ({"continuation": {"max_age_ms": 0}}, "continuation.max_age_ms must be a positive integer"),
        ({"continuation": {"keys": [b""]}}, "continuation.keys must be a non-empty string or bytes"),
        ({"continuation": {"keys": []}}, "continuation.keys must be a non-empty string or bytes"),
        ({"execution_policy": {"timeout": 5}}, "execution_policy.timeout is not an option; did you mean 'timeout_ms'"),
        ({"execution_policy": {"timeoutMS": 5}}, "execution_policy.timeoutMS is not an option"),
        ({"execution_policy": {"timeout_ms": 5, "timeoutMs": 6}}, "execution_policy.timeout_ms is set twice"),
        ({"execution_policy": {"path": "x"}}, "execution_policy.path is not an option"),
        ({"execution_policy": 5}, "must be an ExecutionPolicy or a mapping such as {'timeout_ms': ...}, got 5"),
        ({"executionPolice": {}}, "executionPolice is not an option; did you mean 'execution_policy'"),
        ({"timeout_ms": 5}, "'execution_policy.timeout_ms'? Write {'execution_policy': {'timeout_ms': ...}}"),
        ({"onApprovalRequired": len}, "is not an option; did you mean 'approval.on_approval_required'"),
        ({"max_workers": 2}, "is not an option; it is one of pools: write pool=WorkerPool({'max_workers': ...})"),
        (
            {"execution_policy": {"waitTimeoutMs": 2}},
            "it is one of pools: write pool=WorkerPool({'wait_timeout_ms': ...})",
        ),
        ({"approval": {"max_workers": 2}}, "approval.max_workers is not an option; known are"),
        ({"approval": "interrupt"}, "must be an ApprovalPolicy or a mapping such as {'mode': 'interrupt'}, got"),
        ({"approval": "x" * 200}, "or a mapping such as {'mode': ...}, got 'xxx"),
        (["x" * 200], f"or a mapping such as {{'execution_policy': ...}}, got ['{'x' * 78}"),
        ({5: {}}, "5 is not an option"),
        ([], "options must be a CodeModeOptions or a mapping"),
        ("x", "options must be a CodeModeOptions or a mapping"),
    ],
)
def test_wrong_options_name_the_full_path(given, said):
    with pytest.raises(ValueError, match=r".") as raised:
        CodeModeOptions.of(given)
    assert said in str(raised.value)


@each_row(
    "given, said",
    [
        ({"maxWorkers": 0}, "pool.max_workers must be a positive integer"),
        ({"spare_workers": -1}, "pool.spare_workers must be an integer of at least 0"),
        ({"spare_workers": True}, "pool.spare_workers must be an integer of at least 0"),
        ({"on_saturation": "queue"}, "pool.on_saturation must be one of"),
        ({"isolation": None}, "pool.isolation must be one of"),
        ({"start_method": "spawn"}, "pool.start_method must be one of"),
        ({"worker_command": "python"}, "pool.worker_command must be a list"),
        ({"worker_command": []}, "pool.worker_command must not be empty"),
    ],
)
def test_wrong_pool_options(given, said):
    with pytest.raises(ValueError, match=r".") as raised:
        PoolOptions.of(given)
    assert said in str(raised.value)


def test_camel_case_and_snake_case_mean_the_same():
    camel = {
        "executionPolicy": {"maxInFlightBridgeRequests": 3, "timeoutMs": 5},
        "fetchPolicy": {"allowedUrlPrefixes": ["https://a/b"], "allowedMethods": ["post"]},
        "modelOutput": {"includeNestedToolSummary": True, "maxSummaryEntries": -4},
        "continuation": {"maxAgeMs": 7, "conversationId": "tenant", "keys": "secret"},
    }
    snake = CodeModeOptions(
        execution_policy=ExecutionPolicy(max_in_flight_bridge_requests=3, timeout_ms=5),
        fetch_policy=FetchPolicy(allowed_url_prefixes=("https://a/b",), allowed_methods=("POST",)),
        model_output=ModelOutput(include_nested_tool_summary=True, max_summary_entries=0),
        continuation=ContinuationOptions(max_age_ms=7, conversation_id="tenant", keys=(b"secret",)),
    )
    assert CodeModeOptions.of(camel) == snake


@pytest.mark.parametrize("off", [None, False])
def test_fetch_can_be_switched_off_either_way(off):
    assert CodeModeOptions(fetch_policy=off).fetch_policy is None
    assert CodeModeOptions.of({"fetchPolicy": off}).fetch_policy is None


def test_options_are_taken_as_they_are():
    options = CodeModeOptions(approval=ApprovalPolicy(mode="interrupt"))
    assert CodeModeOptions.of(options) is options
    assert CodeModeOptions.of(None) == CodeModeOptions() == CodeModeOptions.of({})


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match=r"ExecutionPolicy\(\) got an unexpected keyword argument 'timeout'"):
        ExecutionPolicy(timeout=1)
    with pytest.raises(TypeError, match=r"'timeout_m'; did you mean 'timeout_ms'\?"):
        ExecutionPolicy(timeout_m=1)
    with pytest.raises(TypeError, match=r"UsageExample\(\) needs the option"):
        UsageExample()


def test_options_are_frozen_and_can_be_replaced():
    options = CodeModeOptions(execution_policy={"timeout_ms": 5})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.execution_policy = ExecutionPolicy()
    changed = dataclasses.replace(options, approval={"mode": "interrupt"})
    assert (changed.execution_policy.timeout_ms, changed.approval.mode) == (5, "interrupt")
    with pytest.raises(ValueError, match="timeout_ms"):
        dataclasses.replace(options.execution_policy, timeout_ms=0)


def test_keys_never_show():
    assert "secret" not in repr(CodeModeOptions(continuation={"keys": ["secret"]}))
    with pytest.raises(ValueError, match=r"continuation\.keys") as raised:
        ContinuationOptions(keys=("secret", 5))
    assert "secret" not in str(raised.value)


def test_hooks_are_kept():
    hook = print
    assert CodeModeOptions(lifecycle={"onNestedToolCall": hook}).lifecycle == Lifecycle(on_nested_tool_call=hook)


@each_row("hook", [option.name for option in dataclasses.fields(Lifecycle)])
def test_any_hook_is_one_that_a_run_asks_about(hook):
    assert not Lifecycle().has_hooks
    assert Lifecycle(**{hook: print}).has_hooks
    assert not dataclasses.replace(Lifecycle(**{hook: print}), **{hook: None}).has_hooks


def test_a_listing_is_one_of_three_and_a_plugins_own_stands_above_the_options() -> None:
    with pytest.raises(ValueError, match=r"^execution_policy\.listing must be one of 'full', 'names', 'search'"):
        CodeModeOptions(execution_policy={"listing": "none"})
    given = CodeModeOptions(execution_policy={"listing": "names", "timeout_ms": 5})
    policy = given.with_listing("search").execution_policy
    assert (policy.listing, policy.timeout_ms) == ("search", 5)
    assert given.with_listing(None) is given
    assert not policy.is_set_explicitly("timeout_includes_tools")
