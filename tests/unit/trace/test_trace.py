"""How a trace shows itself: as text for a terminal and as a snippet for a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeError, CodeModeTimeoutError, CodeModeToolError
from codemode.types import ConsoleEvent, FetchResultEvent, NestedToolResultEvent, Trace

IDS = {"invocation_id": "i", "outer_tool_call_id": "outer"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31m\u202egnp.exe",
    "a\nb\r\u2028c",
    "&lt;",
]


def request(index=1, name="pay", status="fulfilled", start=0.0, lasted=10.0, **more):
    values = {
        "bridge_index": index, "input_bytes": 2, "replayed": False, "started_at_ms": 1000.0 + start,
        "completed_at_ms": 1000.0 + start + lasted, "duration_ms": lasted, "status": status, **IDS, **more,
    }  # fmt: skip
    if "url" in more:
        return FetchResultEvent(method="GET", **values)
    return NestedToolResultEvent(tool_name=name, tool_call_id=f"outer:tool-{index}", **{"input": {}, **values})


def trace(*requests, console=(), status="completed", error=None, lasted=100.0):
    lines = tuple(ConsoleEvent(**IDS, level=level, text=text) for level, text in console)
    return Trace(
        **IDS, status=status, started_at_ms=1000.0, completed_at_ms=1000.0 + lasted, duration_ms=lasted,
        bridge_requests=requests, console=lines, error=error,
    )  # fmt: skip


class Page(HTMLParser):
    """Collects what a browser would see, and checks that every tag is closed."""

    VOID = frozenset({"br", "img", "meta"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag not in self.VOID
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def styles(self) -> list[str]:
        return [value or "" for name, value in self.attributes if name == "style"]


def test_the_timeline_is_aligned():
    text = trace(
        request(1, "pay", start=1, lasted=2, output_bytes=1),
        request(2, "a_longer_name", "rejected", start=20.5, lasted=1000),
        request(3, url="https://example.com/", replayed=True, output_bytes=20),
    ).to_text()
    assert text.split("\n") == [
        "completed in 100.0 ms, 3 calls",
        "       1.0 ms  +    2.0 ms  pay                             fulfilled, 1 byte",
        "      20.5 ms  + 1000.0 ms  a_longer_name                   rejected",
        "       0.0 ms  +   10.0 ms  fetch GET https://example.com/  fulfilled, 20 bytes, replayed",
    ]


def test_no_calls_make_one_line():
    assert trace().to_text() == "completed in 100.0 ms, 0 calls"


@each_row("text", HOSTILE)
def test_names_cannot_move_the_cursor(text):
    shown = trace(request(name=text)).to_text()
    assert len(shown.split("\n")) == 2
    assert shown.replace("\n", "").isprintable()


@each_row("text", HOSTILE)
def test_hostile_text_stays_text(text):
    error = CodeModeError(text)
    page = Page(
        trace(request(name=text), request(url=text), console=[("log", text)], status="failed", error=error).to_html()
    )
    assert set(page.tags) == {"div", "span", "b"}
    assert {name for name, _ in page.attributes} == {"style", "title"}
    assert not any("url(" in style or "expression" in style for style in page.styles)
    assert "".join(page.texts).isprintable()


@given(st.text(), st.sampled_from(["log", "error"]), st.floats(-1e6, 1e9), st.floats(0, 1e9))
def test_any_text_and_any_time_gives_a_whole_page(text, level, start, lasted):
    html = trace(request(name=text, start=start, lasted=lasted), console=[(level, text)]).to_html()
    assert set(Page(html).tags) == {"div", "span", "b"}


def test_bars_begin_where_their_calls_begin_and_never_leave_the_track():
    page = Page(trace(request(start=25, lasted=50), request(start=200, lasted=1, replayed=True)).to_html())
    first, second = (style for style in page.styles if "position:absolute" in style)
    assert "left:min(12.44%,100% - 3px);width:24.88%" in first  # of 201 ms: the longest call sets the scale
    assert "left:min(99.50%,100% - 14px);width:0.50%" in second


def test_replayed_calls_are_hatched_and_failures_red():
    page = Page(trace(request(replayed=True), request(status="rejected"), request()).to_html())
    replayed, failed, plain = (style for style in page.styles if "position:absolute" in style)
    assert "repeating-linear-gradient" in replayed
    assert "repeating-linear-gradient" not in failed + plain
    assert "#e0484d" in failed
    assert "#e0484d" not in plain


def test_long_traces_are_cut_and_say_so():
    many = trace(*(request(index) for index in range(1000)), console=[("log", "x" * 10_000)] * 1000)
    html = many.to_html()
    page = Page(html)
    assert len(html) < 200_000
    assert "and 800 more calls" in page.texts
    assert "and 950 more lines" in page.texts
    assert "1,000 calls" in page.texts[1] + page.texts[2]


def test_the_snippet_stands_alone():
    html = trace(request()).to_html()
    assert html == trace(request())._repr_html_()
    assert "<style" not in html
    assert "<script" not in html
    assert "http" not in html
    assert html.startswith("<div")
    assert html.endswith("</div>")


def test_why_a_program_failed_is_told():
    thrown = CodeModeError("no property", details={"name": "TypeError", "line": 2, "column": 8})
    hidden = CodeModeToolError("tool 'pay' failed", details={"line": 3, "column": 1})
    hidden.__cause__ = KeyError("db-7")
    for error, reason in (
        (thrown, "TypeError: no property at line 2, column 8"),
        (hidden, "CodeModeToolError: tool 'pay' failed (KeyError: 'db-7') at line 3, column 1"),
        (CodeModeTimeoutError("too late"), "CodeModeTimeoutError: too late"),
    ):
        failed = trace(request(), status="failed", error=error)
        assert failed.to_text().split("\n")[1] == f"  {reason}"
        assert reason in Page(failed.to_html()).texts


def test_inputs_are_shown_shortened():
    value = {"order": "a", "text": "<b>" + "x" * 1000}
    shown = trace(request(input=value))
    assert 'pay {"order":"a","text":"<b>xxx' in shown.to_text()
    assert len(max(shown.to_text().split("\n"), key=len)) < 160
    (text,) = [text for text in Page(shown.to_html()).texts if "order" in text]
    assert text.startswith('{"order":"a","text":"<b>xxx')
    assert len(text) == 300


def test_secrets_in_inputs_are_left_out():
    table = [
        ({"password": "hunter2"}, '{"password":"[secret]"}'),
        ({"login": {"apiKey": "hunter2", "n": 1}}, '{"login":{"apiKey":"[secret]","n":1}}'),
        ({"access_token": 'hun"ter2', "tokens": 5}, '{"access_token":"[secret]","tokens":5}'),
        ({"url": "https://ann:hunter2@example.com/"}, '{"url":"https://example.com/"}'),
        ({"Authorization": "hunter2" * 5000}, '{"Authorization":"[secret]"'),
        ({"tokenizer": "bert"}, '{"tokenizer":"bert"}'),
    ]
    for value, expected in table:
        shown = trace(request(input=value))
        assert f"pay {expected}" in shown.to_text(), value
        assert "hunter2" not in shown.to_text() + shown.to_html(), value


def test_a_replayed_call_has_its_own_time_and_takes_no_room():
    shown = trace(request(start=10, lasted=1, replayed=True, duration_ms=60_000.0), request(start=50, lasted=50))
    assert "+60000.0 ms  pay  fulfilled, replayed" in shown.to_text()
    page = Page(shown.to_html())
    assert "60000.0 ms · replayed" in page.texts
    first, second = (style for style in page.styles if "position:absolute" in style)
    assert "width:1.00%" in first
    assert "width:50.00%" in second
