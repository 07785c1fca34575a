"""What is not understood is refused or left to the engine, never changed; no plain JavaScript is refused for a name."""

import sys
from pathlib import Path

import pytest
from suite import each_row

sys.path.insert(0, str(Path(__file__).parent.parent / "differential"))

from strip_corpus.corpus import judged, result_of

from codemode import create_code_mode_tool
from codemode.errors import CodeModeSyntaxError

WORDS = (  # noqa: SIM905 - read as a sentence
    "as satisfies abstract accessor declare type namespace module global is asserts infer keyof readonly unique "
    "override out of get set static async from require private public protected implements interface package any "
    "unknown never string number object symbol bigint"
).split()
# `@` stands for the word. Every line is JavaScript for at least some of the words.
PLACES = (
    "let @ = 5; @;",
    "var @\n@ = 1",
    "const @ = 5, b = @",
    "let a, @\nlet b",
    "for (const @ of xs) f(@)",
    "for (let @ in xs) f(@)",
    "@ = 1; @ += 2; @++",
    "@(1); new @(2); @.x; @['y']",
    "@\n(1)",
    "@\n[1]",
    "@\n++x",
    "@\nclass A {}",
    "@\nx = 2",
    "@\nfunction f() {}",
    "@\n{ f() }",
    "@: for (;;) { break @ }",
    "let a = { @: 1, b: @ }; a.@; a?.@",
    "let a = { @ }; let { @: c } = a",
    "let a = { @() {}, get @() { return 1 } }",
    "function @() { return @ }",
    "function f(@, a = @) { return @ + a }",
    "const f = @ => @",
    "const f = (@) => @",
    "const f = async (@) => @",
    "const f = async @ => @",
    "class A { @ = 1 }",
    "class A { @; b }",
    "class A { @\nb }",
    "class A { static @ = 1 }",
    "class A { @() { return 1 } }",
    "class A { static @() {} get @() { return 1 } }",
    "class @ {}",
    "try {} catch (@) { f(@) }",
    "if (@) @ = 2; else @ = 3",
    "return @",
    "x ? @ : @",
    "`${@}`",
    "f(a < @, @ > b)",
    "a < @ && @ > b",
    "@ in x; @ instanceof X",
    "typeof @; void @; !@",
)

TYPED = (
    ("const f = (s: TemplateStringsArray) => s[0]; return f<string[]>`q`", "q"),
    ("const f = (s: TemplateStringsArray) => s[0]; return f<{ a: number, b: 'x' | null }>`q`", "q"),
    ("const f = (s: TemplateStringsArray) => s[0]; return [f<Map<string, A.B>>`q`]", ["q"]),
    ("const o = { f: (s: TemplateStringsArray) => s[0] }; return await o.f<A, B>\n`q`", "q"),
    ("const m = new Map<string, number>\nreturn m.size", 0),
    ("interface A<in T, out U, in out V> {}\nclass B<in out T> { x?: T; y = 1 }\nreturn new B<string>().y", 1),
    ("const x: unknown = 3; return x as A.B.C | D.E.F | undefined", 3),
    ("class A { private a: number = 2; abstract; get() { return this.a } }\nreturn new A().get()", 2),
)

NOT_UNDERSTOOD = (
    "type as = 2; const f = (x) => x; return f<number>(3)",
    "interface A {\n  <T>(a: T): T\n  <T, U>(a: T, b: U): T\n}\nconst f = (x: number) => x; return f<number>(3)",
    "class A { static accessor x: number = 1 }\nreturn 1",
    "class A { static [k: number]: string; a = 1 }\nreturn 1",
)


@pytest.mark.node
def test_plain_javascript_is_neither_changed_nor_refused_for_a_name():
    sources = {place.replace("@", word): place.replace("@", word) for place in PLACES for word in WORDS}
    javascript = 0
    for source, (ours, verdict) in judged(sources).items():
        # Where Node's own stripping leaves a text alone, it is JavaScript and nothing else.
        if verdict["theirs"].get("js") == source and "their_error" not in verdict:
            javascript += 1
            assert ours.get("js") == source, (source, ours)
    assert javascript > 1000


def test_a_line_break_makes_a_modifier_a_name():
    for word in ("abstract", "declare", "readonly", "private", "public", "protected", "override"):
        source = f"class A {{ {word}\nx = 1 }}"
        assert result_of(source)["js"] == source
    assert result_of("abstract\nclass A {}")["js"] == "abstract\nclass A {}"
    assert result_of("abstract /*\n*/ class A {}")["js"] == "abstract /*\n*/ class A {}"


@each_row("source, value", TYPED)
def test_types_that_the_grammar_misreads_are_stripped(source, value):
    assert create_code_mode_tool([]).execute_sync({"js": source}) == value


@pytest.mark.parametrize("source", NOT_UNDERSTOOD)
def test_what_is_not_understood_does_not_run(source):
    with pytest.raises(CodeModeSyntaxError) as refused:
        create_code_mode_tool([]).execute_sync({"js": source})
    # Seen before or not, it comes to the same.
    with pytest.raises(CodeModeSyntaxError) as again:
        create_code_mode_tool([]).execute_sync({"js": source})
    assert str(again.value) == str(refused.value)
    assert refused.value.details["line"] >= 1


def test_the_error_of_a_typed_program_is_about_the_mistake():
    source = "const x: number = 1;\nconst f = (a: string): string => a;\nlet = = 2;"
    with pytest.raises(CodeModeSyntaxError) as refused:
        create_code_mode_tool([]).execute_sync({"js": source})
    assert refused.value.details["line"] == 3


def test_a_name_that_the_grammar_takes_for_a_word_runs():
    code_mode = create_code_mode_tool([])
    assert code_mode.execute_sync({"js": "let as = 5, satisfies = 2; return as * satisfies"}) == 10
    assert code_mode.execute_sync({"js": "let abstract = 1\nabstract\nclass A {}\nreturn abstract"}) == 1
