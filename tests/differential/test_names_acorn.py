"""Names, loops and broken rules are those that acorn finds in what runs, however they are hidden."""

import sysconfig
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from acorn_names import Acorn
from benchmarks.programs import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st
from program_pieces import BANNED, HARMLESS, HIDDEN_LOOPS, HIDDEN_NAMES, NESTINGS, TYPESCRIPT, soup
from strip_corpus.corpus import SAME_AS_NODE, programs, types_in_contexts
from suite import each_row, full_only, rounds

from codemode.guest.analysis import analyse
from codemode.profile import StaticRules
from codemode.source import rules

pytestmark = pytest.mark.node
SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
PARSE_MS = 10_000
SECURE = StaticRules(
    disabled_builtins=("eval", "Function", "AsyncFunction"),
    disabled_globals=("require", "process", "fetch", "setTimeout", "setInterval", "global", "globalThis"),
    allow_loops=False,
    runs_unanalysed=False,
)
# Words that are names in one place and part of the language in another; the grammar does not tell which.
DOUBTFUL = ("let", "await")
# A type where JavaScript sees a comparison: the grammar knows the one only.
ONLY_TYPES = ("infer in f<@>(1);", "infer in new F<@>(1);")
_analyser = analyse.load_analyser(SITE_PATHS)


@pytest.fixture(scope="module")
def acorn() -> Iterator[Acorn]:
    with Acorn() as started:
        yield started


def place(js: str, at: int) -> tuple[int, int]:
    before = js.encode("utf-16-le")[: 2 * at].decode("utf-16-le", errors="surrogatepass")
    line = before.rpartition("\n")[2]
    return before.count("\n") + 1, 1 + len(line.encode("utf-16-le", "surrogatepass")) // 2


def expected(js: str, found: dict[str, Any]) -> list[tuple[str, str, tuple[int, int]]]:
    kinds = dict.fromkeys(SECURE.disabled_globals, "DisallowedGlobal")
    kinds |= dict.fromkeys(SECURE.disabled_builtins, "IllegalBuiltinAccess")
    broken = [(kinds[name], name, place(js, at)) for name, at in found["names"] if name in kinds]
    broken += [("DisallowedLoop", kind, place(js, at)) for kind, at in found["loops"]]
    broken += [("DisallowedImport", kind, place(js, at)) for kind, at in found["modules"]]
    return sorted(broken, key=lambda one: one[2])[: rules.MAX_VIOLATIONS]


def told(source: str, facts: Any) -> list[tuple[str, str | None, tuple[int, int]]]:
    return [
        (one["kind"], one.get("name"), (one["location"]["line"], one["location"]["column"]))
        for one in rules.find_violations(facts, SECURE, source)
    ]


def judged(acorn: Acorn, source: str) -> str:
    """Compares a program with acorn's reading of what would run of it; what came of it, in a word."""
    result = _analyser(source, PARSE_MS, True)
    if "problems" in result:
        return "refused"
    facts, found = result["facts"], acorn(result["js"])
    if not rules.has_analysis_facts(facts):
        assert told(source, facts) == [("NotAnalysable", None, (1, 1))]
        return "no program" if found is None else "unknown"
    if found is None:
        return "no program"
    names: dict[str, list[int]] = {}
    for name, at in sorted(found["names"], key=lambda one: one[1]):
        names.setdefault(name, []).append(at)
    data = source.encode()
    ours = {
        name: [len(data[:at].decode().encode("utf-16-le")) // 2 for at in places]
        for name, places in facts["names"].items()
    }
    for word in DOUBTFUL:
        names.pop(word, None)
        ours.pop(word, None)
    assert ours == {name: places[:64] for name, places in names.items()}, source
    assert told(source, facts) == expected(source, found), source
    return "same"


@pytest.mark.full
def test_no_false_alarm_on_the_corpus(acorn: Acorn):
    themes = (*SAME_AS_NODE, "deviations", "gaps", "refused")
    sources = {name: source for theme in themes for name, source in programs(theme).items()}
    sources |= types_in_contexts()
    sources |= {program.name: program.js for program in PROGRAMS}
    verdicts = {name: judged(acorn, source) for name, source in sources.items()}
    assert sorted(name for name, verdict in verdicts.items() if verdict == "unknown") == sorted(ONLY_TYPES)
    assert Counter(verdicts.values())["same"] > 2900


def test_each_way_to_hide_a_name_or_a_loop_by_itself(acorn: Acorn):
    for piece in (*HIDDEN_NAMES, *HIDDEN_LOOPS):
        for name in BANNED:
            source = piece.replace("@", name)
            # A strict program may not bind `eval`: what is no program does not run.
            assert judged(acorn, source) in ("same", "no program" if name == "eval" else "same"), source
            assert told(source, _analyser(source, PARSE_MS, True)["facts"]), source


def test_each_thing_that_is_no_name_by_itself(acorn: Acorn):
    for piece in HARMLESS:
        for name in BANNED:
            source = piece.replace("@", name)
            assert judged(acorn, source) == "same", source
            assert not told(source, _analyser(source, PARSE_MS, True)["facts"]), source


@pytest.mark.full
def test_each_piece_in_each_nesting(acorn: Acorn):
    for piece in (*HIDDEN_NAMES, *HIDDEN_LOOPS):
        for nesting in NESTINGS:
            source = nesting.replace("%", piece.replace("@", "eval"))
            assert judged(acorn, source) in ("same", "no program"), source


def nested(draw: Any, pieces: tuple[str, ...]) -> str:
    """A piece inside as many others as hypothesis likes, with TypeScript and comments around it."""
    source = draw(st.sampled_from(pieces)).replace("@", draw(st.sampled_from(BANNED)))
    for _ in range(draw(st.integers(0, 4))):
        source = draw(st.sampled_from(NESTINGS)).replace("%", source)
    around = draw(st.lists(st.sampled_from(TYPESCRIPT), max_size=4, unique=True))
    before = draw(st.integers(0, len(around)))
    return "\n".join((*around[:before], source, *around[before:]))


@settings(max_examples=rounds(40, 400), deadline=None)
@given(st.data())
def test_what_is_hidden_in_others_is_found(acorn: Acorn, data: st.DataObject):
    source = nested(data.draw, (*HIDDEN_NAMES, *HIDDEN_LOOPS))
    assert judged(acorn, source) in ("same", "no program")
    assert told(source, _analyser(source, PARSE_MS, True)["facts"])


@settings(max_examples=rounds(30, 300), deadline=None)
@given(st.data())
def test_what_is_no_name_in_others_is_allowed(acorn: Acorn, data: st.DataObject):
    source = nested(data.draw, HARMLESS)
    assert judged(acorn, source) == "same"
    assert not told(source, _analyser(source, PARSE_MS, True)["facts"])


@settings(max_examples=rounds(120, 1200), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_any_pieces_are_read_as_acorn_reads_them_or_not_at_all(acorn: Acorn, seed: int):
    judged(acorn, soup(Random(seed)))


@pytest.mark.parametrize(
    "padding",
    [
        "// x / ' ` eval\n",
        *full_only("/* { ( */", "a = 'eval';\n", "f(`${1}`, /x/g);\n"),
    ],
)
def test_padding_hides_nothing(acorn: Acorn, padding: str):
    source = padding * ((64 << 10) // len(padding)) + "\n\\u0065val(1); for (;;) {}"
    assert judged(acorn, source) == "same"
    assert [kind for kind, _, _ in told(source, _analyser(source, PARSE_MS, True)["facts"])] == [
        "IllegalBuiltinAccess",
        "DisallowedLoop",
    ]


@each_row("tail", ["\n)", "\n'", "\n`", "\n/*", "\n}", "\n@@", "\nlet = = 1", "\nconst x: = 1", "\n<"])
@each_row("head", ["eval(1)", "const x: number = 1; eval(x as any)"])
def test_a_tail_that_is_not_understood_leaves_nothing_allowed(head: str, tail: str):
    result = _analyser(head + tail, PARSE_MS, True)
    assert "problems" in result or told(head + tail, result["facts"]) == [("NotAnalysable", None, (1, 1))]


def test_past_the_deadline_nothing_is_allowed():
    assert told("return 1", _analyser("return 1", -1, True)["facts"]) == [("NotAnalysable", None, (1, 1))]
