"""Stripping moves nothing: every remaining character keeps its line and its column in UTF-16 units."""

from hypothesis import given, settings
from hypothesis import strategies as st
from strip_corpus.corpus import SAME_AS_NODE, programs, result_of
from suite import each_row, rounds

NEWLINES = "\n\r\u2028\u2029"
ALL = {name: source for theme in (*SAME_AS_NODE, "deviations", "gaps") for name, source in programs(theme).items()}


def units(text: str) -> list[int]:
    data = text.encode("utf-16-le")
    return [data[index] | data[index + 1] << 8 for index in range(0, len(data), 2)]


def assert_nothing_moved(source: str, js: str) -> None:
    before, after = units(source), units(js)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert new == old or (chr(new) in " ;()" and chr(old) not in NEWLINES)


@each_row("name", ALL)
def test_corpus_keeps_its_places(name):
    result = result_of(ALL[name])
    if "js" in result:
        assert_nothing_moved(ALL[name], result["js"])


@each_row("name", [name for name in ALL if not name.startswith(("gaps", "deviations"))])
def test_what_was_stripped_is_plain_javascript(name):
    js = result_of(ALL[name])["js"]
    assert result_of(js)["js"] == js


@settings(max_examples=rounds(20, 150), deadline=None)
@given(
    st.lists(st.sampled_from(sorted(ALL.values())), min_size=2, max_size=5), st.sampled_from(["", "\n", "\n;\n", " "])
)
def test_programs_one_after_another(sources, glue):
    source = glue.join(sources)
    result = result_of(source)
    if "js" in result:
        assert_nothing_moved(source, result["js"])


PIECES = (
    *"(){}[]<>;:,.?!=|&+-*/`'\"\n\t @#$\\é😀",
    *(
        "as ",
        "type ",
        "interface ",
        "enum ",
        "declare ",
        "abstract ",
        "class ",
        "function ",
        "return ",
        "async ",
        "await ",
    ),
    *(
        "const ",
        "let ",
        "x",
        "T",
        "=>",
        "?.",
        "${",
        "//",
        "/*",
        "*/",
        "!:",
        "?:",
        "satisfies ",
        "namespace ",
        "import ",
    ),
    *(
        "export ",
        "keyof ",
        "typeof ",
        "readonly ",
        "private ",
        "is ",
        "infer ",
        "extends ",
        "tools.",
        "a.b.c",
        "require(",
    ),
    *(
        "static ",
        "get ",
        "override ",
        "this",
        "1",
        "\r\n",
        "\u2028",
        "\0",
        "\ufeff",
        "<T>",
        "/x/g",
        "{a: 1}",
        "tools.x({",
    ),
)


@settings(max_examples=rounds(40, 400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_pieces_of_typescript(source):
    result = result_of(source)
    assert ("problems" in result) != ("js" in result)
    if "js" in result:
        assert_nothing_moved(source, result["js"])


@settings(max_examples=rounds(20, 150), deadline=None)
@given(st.sampled_from(sorted(ALL.values())), st.data())
def test_damaged_programs(source, data):
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 20)))
    damaged = source[:start] + data.draw(st.sampled_from(["", "(", "{", "`", "<", "é😀", "'", "/*"])) + source[end:]
    result = result_of(damaged)
    if "js" in result:
        assert_nothing_moved(damaged, result["js"])
