"""Signed values: only what was signed, by a known key, for this purpose and binding, and in time, is taken."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeProtocolError
from codemode.continuations.signing import KeyRing

NOW_MS = 1_700_000_000_000
OLD, NEW, OTHER = b"old", b"new", b"other"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def ring(*keys, purpose="continuation", binding=None):
    return KeyRing(keys or (OLD,), purpose=purpose, binding=binding)


def signed(by=None, value=None, **settings):
    given_settings = {"nonce": "n", "now_ms": NOW_MS, "max_age_ms": 1000, **settings}
    return (by or ring()).sign({"value": 1} if value is None else value, **given_settings)


def refused(value, by=None, match=None, now_ms=NOW_MS):
    with pytest.raises(CodeModeProtocolError, match=match):
        (by or ring()).verify(value, now_ms=now_ms)


@given(json_values)
def test_what_was_signed_is_taken_after_a_way_through_json(value):
    auth = ring().verify(json.loads(json.dumps(signed(value={"value": value}))), now_ms=NOW_MS)
    assert (auth.nonce, auth.issued_at_ms, auth.expires_at_ms) == ("n", NOW_MS, NOW_MS + 1000)


@given(json_values, json_values)
def test_another_value_is_refused(value, other):
    if json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True):
        refused({**signed(value={"value": value}), "value": other})


def test_the_order_of_keys_does_not_matter():
    value = signed(value={"a": 1, "b": {"c": 2, "d": 3}})
    ring().verify({"auth": value["auth"], "b": {"d": 3, "c": 2}, "a": 1}, now_ms=NOW_MS)


@each_row("field", ["alg", "keyId", "nonce", "issuedAtMs", "expiresAtMs", "signature"])
@each_row("wrong", [None, "", "x", 1, True, [], {}, NOW_MS + 10_000, NOW_MS + 500.0, float("nan"), "é\ud800"])
def test_every_field_of_the_signature_is_checked(field, wrong):
    value = copy.deepcopy(signed())
    value["auth"][field] = wrong
    refused(value)


@each_row("auth", [None, [], "x", {}, {"alg": "HMAC-SHA256"}])
def test_an_unsigned_value_is_refused(auth):
    refused({"value": 1, "auth": auth}, match="not signed")
    refused({"value": 1}, match="not signed")


def test_a_binding_cannot_be_taken_off_or_put_on():
    bound, free = signed(ring(binding=["a", None])), signed()
    for changed in (None, [], "x", [None, None], ["x" * 32, None], [5, {}], float("nan")):
        refused({**bound, "auth": {**bound["auth"], "bindings": changed}})
        refused({**bound, "auth": {**bound["auth"], "bindings": changed}}, ring(binding=["a", None]))
        if changed is not None:
            refused({**free, "auth": {**free["auth"], "bindings": changed}})
    refused({**bound, "auth": {key: one for key, one in bound["auth"].items() if key != "bindings"}})
    refused({**bound, "auth": {**bound["auth"], "nonce": {"a"}}}, ring(binding=["a", None]))
    other = signed(ring(binding=["a", None]), nonce="m")
    assert other["auth"]["bindings"] != bound["auth"]["bindings"]  # nobody can tell that both are of one owner


def test_an_extra_field_is_refused():
    value = signed()
    refused({**value, "more": 1})
    refused({**value, "auth": {**value["auth"], "more": 1}})


def test_the_last_key_signs_and_any_verifies():
    before, after = ring(OLD), ring(OLD, NEW)
    after.verify(signed(before), now_ms=NOW_MS)
    ring(NEW).verify(signed(after), now_ms=NOW_MS)
    refused(signed(after), before, "not known")
    refused(signed(before), ring(NEW), "not known")


def test_the_key_id_does_not_decide_which_key_is_right():
    value = signed(ring(OLD))
    value["auth"]["keyId"] = signed(ring(NEW))["auth"]["keyId"]
    refused(value, ring(OLD, NEW), "signature is wrong")


def test_purposes_and_bindings_are_kept_apart():
    refused(signed(ring(purpose="seal")), match="signature is wrong")
    refused(signed(ring(binding="tenant a")), ring(binding="tenant b"), "another conversation")
    refused(signed(ring(binding="tenant a")), match="belongs to a conversation, but no conversation_id was given")
    refused(signed(ring(binding=["a", "b"])), ring(binding=["a", None]), "no conversation_id was given")
    refused(signed(), ring(binding="tenant a"), "another conversation")
    ring(binding="tenant a").verify(signed(ring(binding="tenant a")), now_ms=NOW_MS)
    assert "tenant" not in json.dumps(signed(ring(binding="tenant a")))
    assert len({ring(purpose=purpose).get_secret() for purpose in ("continuation", "seal", "")}) == 3


def test_a_signature_holds_until_it_expires():
    ring().verify(signed(), now_ms=NOW_MS + 999)
    refused(signed(), match="expired", now_ms=NOW_MS + 1000)


def test_a_signature_of_the_future_is_refused_but_clocks_may_differ_a_little():
    ring().verify(signed(), now_ms=NOW_MS - 60_000)
    refused(signed(), match="future", now_ms=NOW_MS - 60_001)


def test_what_is_no_json_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, object(), float("nan"), {1: 1, "1": 2}, {1, 2}):
        refused({**signed(), "value": value})
    while deep:  # taken apart by hand: freeing it would overflow the stack on some versions
        deep = deep[0]
