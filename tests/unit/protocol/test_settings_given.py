"""Settings of an invocation: what was given changes nothing else of them."""

from __future__ import annotations

from dataclasses import fields, replace

from codemode.options.parts import CodeModeOptions
from codemode.protocol.settings import InvocationSettings
from codemode.surfaces.code_mode.outcome import CODE_MODE

MORE = ("fetch", "state", "language_names", "invocation_data_json", "hides_inputs")
LIMITS = CodeModeOptions().execution_policy


def test_what_was_given_is_added_and_all_else_stays():
    settings = InvocationSettings("outer", "salt", "seed", 5, LIMITS, CODE_MODE, True, True, ("then",), "{}", True)
    assert settings.with_invocation_data('{"a":1}') == replace(settings, invocation_data_json='{"a":1}')
    plain = InvocationSettings("outer", "salt", "seed", 5, LIMITS, CODE_MODE)
    assert all(
        getattr(settings, one.name) != getattr(plain, one.name)
        for one in fields(InvocationSettings)
        if one.name in MORE
    )
