"""Names of prompts, URIs of resources and cursors: distinct, stable, read back to what they were made of."""

from __future__ import annotations

import re

import pytest
from codemode_gateway.passthrough import uri_routing
from codemode_gateway.passthrough.uri_routing import (
    MAX_PROMPT_NAME_CHARACTERS,
    CursorError,
    PaginatedList,
    UriRoutes,
    add_server_mark,
    find_template_server,
    list_servers_with_same_origin,
    may_be_prompt_of,
    split_server_mark,
    to_public_prompt_name,
)
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

SHORT = st.text("ab_", min_size=1, max_size=4)
SERVERS = st.lists(SHORT | st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique=True)
NAMES = SHORT | st.text(max_size=80) | st.builds(lambda text: text + "_0123456789ab", SHORT)


@given(SERVERS, st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_no_two_prompts_are_called_the_same_whatever_they_and_their_servers_are_called(
    servers: list[str], names: list[str]
) -> None:
    public = {(server, name): to_public_prompt_name(server, name, servers) for server in servers for name in names}
    assert len(set(public.values())) == len(public)
    for (server, _), said in public.items():
        assert re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_PROMPT_NAME_CHARACTERS}}}", said)
        assert may_be_prompt_of(said, server)


@given(SHORT, SHORT, SERVERS)
def test_a_name_does_not_depend_on_servers_that_begin_otherwise(server: str, name: str, others: list[str]) -> None:
    others = [one for one in others if not server.startswith(one[0])]
    assert to_public_prompt_name(server, name, [server, *others]) == f"{server}_{name}"


@given(st.text(max_size=30) | st.sampled_from(["x://y#server=a", "x://y&server=b", "x#y"]), SERVERS, st.data())
def test_a_marked_uri_is_read_back_to_its_server(uri: str, servers: list[str], data: st.DataObject) -> None:
    server = data.draw(st.sampled_from(servers))
    assert split_server_mark(add_server_mark(uri, server), servers) == (uri, server)


ABC = ["a", "b", "c"]
URIS = st.sampled_from(["t://1", "t://2", "t://1#server=a", "t://1#x", "t://1#x&server=b", "t://1#server=a#server=b"])


@given(st.lists(st.tuples(st.sampled_from(ABC), URIS, st.booleans()), max_size=20))
def test_whatever_servers_list_or_link_no_uri_leads_to_another_server_or_resource(
    said: list[tuple[str, str, bool]],
) -> None:
    routes = UriRoutes()
    told: dict[str, tuple[str, str]] = {}
    for server, uri, is_linked in said:
        public = (
            routes.register_linked_and_get_public_uri if is_linked else routes.register_listed_and_get_public_uri
        )(uri, server, ABC)
        owner = routes.find_owner_and_server_uri(public, ABC)
        assert owner is None or owner == (server, uri)
        if not is_linked:
            assert told.setdefault(public, (server, uri)) == (server, uri)
            assert routes.find_owner_and_server_uri(public, ABC) == (server, uri)


@each_row(
    "template, uri, fits",
    [
        ("t://{x}/y", "t://1/y", True),
        ("t://{x}/y", "t://1/z", False),
        ("t://{x}", "t://", True),
        ("t://{a}/{b}/c", "t://1/2/c", True),
        ("t://{a}/{b}/c", "t://1/c", False),
        ("t://same", "t://same", True),
        ("t://same", "t://same2", False),
        ("{+any}", "whatever", True),
        ("t://{open", "t://", True),
    ],
)
def test_a_template_fits_what_it_may_be_filled_in_to(template: str, uri: str, fits: bool) -> None:
    assert find_template_server(uri, [("s", template)]) == ("s" if fits else None)


def test_what_no_url_parser_reads_is_like_nothing_else() -> None:
    assert list_servers_with_same_origin("http://[::1", [("a", "http://[::2"), ("b", "http://x")]) == []
    assert list_servers_with_same_origin(
        "http://x/1", [("a", "http://y/1"), ("b", "http://x"), ("c", "http://x/2")]
    ) == [
        "b",
        "c",
    ]


ITEMS = st.lists(st.tuples(st.text(max_size=8), st.integers(0, 400_000)), max_size=30, unique_by=lambda one: one[0])


@given(ITEMS, st.data())
def test_pages_come_to_the_whole_list_also_where_items_come_and_go(
    items: list[tuple[str, int]], data: st.DataObject
) -> None:
    def paged() -> PaginatedList[str]:
        return PaginatedList("x/list", [(key, size, key) for key, size in now])

    now, seen, cursor = list(items), list[str](), None
    gone: set[str] = set()
    while True:
        page, cursor = paged().get_page(cursor)
        assert page or not now
        seen += page
        if cursor is None:
            break
        if data.draw(st.booleans()):
            gone.add(now.pop(data.draw(st.integers(0, len(now) - 1)))[0])
            now.append((f"new {len(gone)} {data.draw(st.text(max_size=3))}", 1))
    # What was there all the time is there, but for where the place itself was lost.
    kept = [key for key, _ in items if key not in gone]
    assert gone or seen == kept
    assert len(seen) >= len(kept) - len(gone)


@given(st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: raw.hex()))
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(CursorError, match="start again"):
        PaginatedList("x/list", [("a", 1, "a")]).get_page(cursor)


def test_a_page_is_bounded_in_items_and_characters_and_never_empty() -> None:
    many = [(str(number), 1, number) for number in range(uri_routing.MAX_ITEMS + 1)]
    assert len(PaginatedList("x/list", many).get_page(None)[0]) == uri_routing.MAX_ITEMS
    large = [(str(number), uri_routing.MAX_CHARACTERS * 2, number) for number in range(3)]
    first, cursor = PaginatedList("x/list", large).get_page(None)
    assert first == [0]
    assert PaginatedList("x/list", large).get_page(cursor)[0] == [1]
