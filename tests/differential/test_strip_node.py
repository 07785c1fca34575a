"""Stripped programs are, token for token and place for place, what Node's own type stripping makes of them."""

import pytest
from required import missing, node_path
from strip_corpus.corpus import SAME_AS_NODE, judged, programs, result_of, types_in_contexts

pytestmark = pytest.mark.node
UNSUPPORTED = "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX"

# Where Node's result changes what the program means (each joins two statements) or leaves TypeScript in it.
OUR_RESULTS = {
    "deviations: alias then parenthesis": "const a = b\n;              \n (d)",
    "deviations: two interfaces between": "const a = b\n;             \n              \n(d)",
    "deviations: field without semicolon then declared then computed": (
        'class A {\n  a = 1\n  ;                 \n  ["c"] = 2\n}'
    ),
    "deviations: cast const": None,
    # What the grammar mistakes for something else is refused, with the way out in the message.
    "deviations: cast before a line that starts with a bracket": None,
    "deviations: cast to a union before a line that starts with a bracket": None,
}


def test_corpus_is_large_enough():
    assert sum(len(programs(theme)) for theme in SAME_AS_NODE) >= 350


@pytest.mark.parametrize("theme", SAME_AS_NODE)
def test_same_tokens_as_node(theme):
    wrong = {
        name: (ours.get("js") or ours["problems"], verdict)
        for name, (ours, verdict) in judged(programs(theme)).items()
        if not verdict.get("same") or verdict.get("our_error")
    }
    assert not wrong


def test_refused_constructs_are_those_node_refuses():
    for name, (ours, verdict) in judged(programs("refused")).items():
        assert "problems" in ours, name
        error = verdict["theirs"].get("error", "")
        # Node looks no further than the word in a program that it does not take for a module.
        assert error.startswith(UNSUPPORTED) or "cannot be used outside of module" in error, (name, error)


@pytest.mark.full
def test_every_type_in_every_place():
    seen = {"same": 0}
    for name, (ours, verdict) in judged(types_in_contexts()).items():
        if "error" in verdict["theirs"]:
            continue  # a place where TypeScript does not take this type
        if "problems" in ours:
            assert [problem["message"] for problem in ours["problems"]] == [
                "a union with a qualified name is not supported here: put parentheses around it, `x as (A.B.C | D)`"
            ] * len(ours["problems"]), name
        elif 'f<import("x").Y>' not in name and name != 'import("x").Y in f<@>(1);':
            assert verdict["same"], (name, ours["js"], verdict)
            assert not verdict.get("our_error"), name
            seen["same"] += 1
    assert seen["same"] > 2000


def test_where_we_differ_from_node():
    found = {name: result_of(source).get("js") for name, source in programs("deviations").items()}
    assert found == OUR_RESULTS


def test_what_the_grammar_does_not_know_is_left_to_the_engine():
    for name, source in programs("gaps").items():
        result = result_of(source)
        assert result["facts"] is None, name


@pytest.mark.full
def test_plain_javascript_is_untouched():
    """Every JavaScript file that ships with Node's npm: a thousand programs nobody wrote for this test."""
    from pathlib import Path

    folder = Path(node_path()).parent.parent / "lib" / "node_modules"
    files = [path for path in sorted(folder.rglob("*.js")) if path.stat().st_size < 60_000]
    if not files:
        missing("node", "no JavaScript files beside this node")
    for path in files:
        source = path.read_text(encoding="utf-8")
        assert result_of(source).get("js") == source, path
