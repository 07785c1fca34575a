"""How a trace shows itself: as text for a terminal and as a snippet for a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import CodeModeError, ConsoleEvent, FetchResultEvent, NestedToolResultEvent, Trace

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
    return NestedToolResultEvent(tool_name=name, tool_call_id=f"outer:tool-{index}", input={}, **values)


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
        trace(
            request(name=text), request(url=text), console=[("log", text)], status="failed", error=error
        )._repr_html_()
    )
    assert set(page.tags) == {"div", "span", "b"}
    assert {name for name, _ in page.attributes} == {"style", "title"}
    assert not any("url(" in style or "expression" in style for style in page.styles)
    assert "".join(page.texts).isprintable()


@given(st.text(), st.sampled_from(["log", "error"]), st.floats(-1e6, 1e9), st.floats(0, 1e9))
def test_any_text_and_any_time_gives_a_whole_page(text, level, start, lasted):
    html = trace(request(name=text, start=start, lasted=lasted), console=[(level, text)])._repr_html_()
    assert set(Page(html).tags) == {"div", "span", "b"}


def test_bars_begin_where_their_calls_begin_and_never_leave_the_track():
    page = Page(trace(request(start=25, lasted=50), request(start=200, lasted=1, replayed=True))._repr_html_())
    first, second = (style for style in page.styles if "position:absolute" in style)
    assert "left:min(12.44%,100% - 3px);width:24.88%" in first  # of 201 ms: the longest call sets the scale
    assert "left:min(99.50%,100% - 14px);width:0.50%" in second


def test_replayed_calls_are_hatched_and_failures_red():
    page = Page(trace(request(replayed=True), request(status="rejected"), request())._repr_html_())
    replayed, failed, plain = (style for style in page.styles if "position:absolute" in style)
    assert "repeating-linear-gradient" in replayed
    assert "repeating-linear-gradient" not in failed + plain
    assert "#e0484d" in failed
    assert "#e0484d" not in plain


def test_long_traces_are_cut_and_say_so():
    many = trace(*(request(index) for index in range(1000)), console=[("log", "x" * 10_000)] * 1000)
    html = many._repr_html_()
    page = Page(html)
    assert len(html) < 200_000
    assert "and 800 more calls" in page.texts
    assert "and 950 more lines" in page.texts
    assert "1,000 calls" in page.texts[1] + page.texts[2]


def test_the_snippet_stands_alone():
    html = trace(request())._repr_html_()
    assert "<style" not in html
    assert "<script" not in html
    assert "http" not in html
    assert html.startswith("<div")
    assert html.endswith("</div>")
