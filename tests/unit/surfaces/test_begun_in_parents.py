"""What a thread of the parent had begun when it forked: the child waits for none of it, and does it itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from forked_children import in_a_child
from waiting import until, within

from codemode import Tool
from codemode.options.parts import ModelOutput
from codemode.surfaces.code_call.index import ToolChangeListeners
from codemode.surfaces.code_mode.model_output import ModelOutputFormatter
from codemode.surfaces.exec_wait.mcp_server import SingleFlight
from codemode.surfaces.exec_wait.namespaces import NamespaceRegistry
from codemode.surfaces.modules.server_set import ServerSet
from codemode.tools.search.embeddings import Embeddings


@contextmanager
def under_way(work: Coroutine[Any, Any, Any], begun: threading.Event) -> Generator[None]:
    """Let a loop in another thread be in the middle of something meanwhile."""
    ended: Future[None] = Future()

    async def live() -> None:
        task = asyncio.ensure_future(work)
        await asyncio.wrap_future(ended)
        task.cancel()  # with all else that is left when the loop ends

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        ended.set_result(None)
        thread.join(60)


class Hangs:
    """Hangs in the thread that asks first, and answers whoever asks next."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    async def __call__(self) -> None:
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.Event().wait()


def test_work_that_is_done_once_for_all_is_done_in_the_child():
    hangs = Hangs()
    once = SingleFlight(hangs)
    with under_way(once.run(), hangs.begun):
        in_a_child(lambda: within(once.run(), 30))


def test_a_server_that_is_being_listed_is_listed_in_the_child():
    hangs = Hangs()

    class Live:
        server_id = "live"
        revision = 1

        async def tools(self) -> list[Tool]:
            await hangs()
            return [Tool("one", execute=None)]

    servers = ServerSet([Live()])

    def listed() -> None:
        within(servers.refresh(), 30)
        assert [one.tool_name for one in servers.get_or_build_catalog().servers[0].tools] == ["one"]

    with under_way(servers.refresh(), hangs.begun):
        in_a_child(listed)


def test_texts_that_are_being_embedded_in_a_thread_are_embedded_in_the_child():
    begun, release, texts = threading.Event(), threading.Event(), {b"1": "one"}

    def embed(batch: list[str]) -> list[list[float]]:
        if not begun.is_set():
            begun.set()
            release.wait(60)
        return [[1.0, 2.0] for _ in batch]

    meanings = Embeddings(embed)

    async def made() -> None:
        await until(
            lambda: meanings.start_embedding_and_get_problem(texts) or meanings.get_vectors_if_complete([*texts])
        )

    meanings.start_embedding_and_get_problem(texts)
    assert begun.wait(60)
    try:
        in_a_child(lambda: within(made(), 30))
    finally:
        release.set()
    within(made())


def test_texts_that_are_being_embedded_on_a_loop_are_embedded_in_the_child():
    hangs, texts = Hangs(), {b"1": "one"}

    async def embed(batch: list[str]) -> list[list[float]]:
        await hangs()
        return [[1.0, 2.0] for _ in batch]

    meanings = Embeddings(embed)

    async def begin() -> None:
        meanings.start_embedding_and_get_problem(texts)
        await asyncio.Event().wait()

    async def made() -> None:
        await until(
            lambda: meanings.start_embedding_and_get_problem(texts) or meanings.get_vectors_if_complete([*texts])
        )

    with under_way(begin(), hangs.begun):
        in_a_child(lambda: within(made(), 30))


def test_changes_are_told_in_the_child_while_its_parent_tells():
    begun, release = threading.Event(), threading.Event()
    listeners, heard = ToolChangeListeners(), []

    def listen(change: dict[str, Any]) -> None:
        heard.append(change)
        begun.set()
        if change["version"] == 1:
            release.wait(60)

    listeners.add(listen)
    listeners.enqueue_change({"version": 1})
    thread = threading.Thread(target=listeners.notify_all)
    thread.start()
    assert begun.wait(60)

    def tell() -> None:
        listeners.enqueue_change({"version": 2})
        listeners.notify_all()
        assert heard == [{"version": 1}, {"version": 2}]

    try:
        in_a_child(tell)
    finally:
        release.set()
        thread.join(60)


def test_what_is_kept_is_counted_anew_in_the_child():
    outputs = ModelOutputFormatter(ModelOutput(max_model_characters=1000), lambda _name: None)
    outputs.remember_run("call", "result", None, "said")
    counted = outputs._retained_bytes
    outputs._retained_bytes -= 3  # as by a thread that was in the middle of it

    def look() -> None:
        assert outputs._retained_bytes == counted

    in_a_child(look)


def test_a_registry_of_the_child_is_another_version():
    registry = NamespaceRegistry()
    before = registry.version

    def look() -> None:
        assert registry.version != before

    in_a_child(look)
    assert registry.version == before
