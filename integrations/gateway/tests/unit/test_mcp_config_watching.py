"""Watching a configuration: what counts as a change, and what is said of a file that is broken in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from codemode_gateway import ConfigError, GatewayConfig, load_config, watch_config

BOUND = 60


def text(*names: str, comment: str = "") -> str:
    return f'{{{comment}"mcpServers": {{{",".join(f""""{name}": {{"command": "x"}}""" for name in names)}}}}}'


# A loop may not wait for a disk: what a test writes, it writes from here.


def write(file: Path, said: str) -> None:
    file.write_text(said)


def gone(file: Path) -> None:
    file.unlink()


def linked(file: Path, target: Path) -> None:
    file.symlink_to(target)


def names(config: GatewayConfig) -> list[str]:
    return [server.name for server in config.servers]


class Watch:
    """A watched file whose looks happen when a test lets them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[list[str]] = []
        self.told: list[str] = []
        self._looks = asyncio.Semaphore(0)
        self._rests = asyncio.Semaphore(0)

    async def pause(self) -> None:
        self._rests.release()
        await self._looks.acquire()

    async def run(self, since: GatewayConfig | None) -> None:
        how = {"environ": {}, "on_error": lambda problem: self.told.append(str(problem)), "pause": self.pause}
        async for config in watch_config(self.file, since=since, **how):  # type: ignore[arg-type]
            self.found.append(names(config))

    async def look(self, times: int = 2) -> None:
        """Have the file looked at; by its return all that these looks tell is told."""
        for _ in range(times):
            self._looks.release()
            await asyncio.wait_for(self._rests.acquire(), BOUND)

    async def begun(self) -> None:
        await asyncio.wait_for(self._rests.acquire(), BOUND)


@asynccontextmanager
async def watching(file: Path, since: GatewayConfig | None = None) -> AsyncIterator[Watch]:
    watch = Watch(file)
    task = asyncio.create_task(watch.run(since))
    try:
        await watch.begun()
        yield watch
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=BOUND)


def run(body: Callable[[Path], object], folder: Path) -> None:
    file = folder / "mcp.json"
    write(file, text("a"))
    asyncio.run(body(file))  # type: ignore[arg-type]


def test_a_change_is_told_once_and_only_when_it_says_something_else(tmp_path: Path):
    async def body(file: Path) -> None:
        async with watching(file) as watch:
            await watch.look(6)
            assert watch.found == []
            write(file, text("a", "b"))
            await watch.look(8)
            assert watch.found == [["a", "b"]]
            write(file, text("a", "b", comment="/* more */"))
            await watch.look()
            os.utime(file, (1, 1))
            await watch.look()
            assert watch.found == [["a", "b"]]
            write(file, text("a"))
            await watch.look()
            assert watch.found == [["a", "b"], ["a"]]

    run(body, tmp_path)


def test_a_file_that_takes_the_place_of_the_old_one_is_seen(tmp_path: Path):
    async def body(file: Path) -> None:
        async with watching(file) as watch:
            for index in range(3):
                other = file.with_name("other")
                write(other, text(f"s{index}"))
                other.replace(file)
                await watch.look()
            assert watch.found == [["s0"], ["s1"], ["s2"]]
            target = file.with_name("target")
            write(target, text("t"))
            gone(file)
            linked(file, target)
            await watch.look()
            write(target, text("u"))
            await watch.look()
            assert watch.found[3:] == [["t"], ["u"]]

    run(body, tmp_path)


def test_a_broken_file_in_between_is_told_once_and_keeps_the_old(tmp_path: Path):
    async def body(file: Path) -> None:
        async with watching(file) as watch:
            write(file, '{"mcpServers": ')
            await watch.look(8)
            gone(file)
            await watch.look(8)
            assert watch.found == []
            assert len(watch.told) == 2
            assert "line 1, column 16" in watch.told[0]
            assert "there is no such file" in watch.told[1]
            write(file, text("a"))
            await watch.look()
            assert watch.found == []
            write(file, text("b"))
            await watch.look()
            assert (watch.found, len(watch.told)) == ([["b"]], 2)

    run(body, tmp_path)


def test_what_is_half_written_at_one_look_is_not_taken(tmp_path: Path):
    async def body(file: Path) -> None:
        async with watching(file) as watch:
            write(file, "")
            await watch.look(1)
            write(file, text("half"))
            await watch.look(1)
            write(file, text("whole"))
            await watch.look(2)
            assert (watch.found, watch.told) == ([["whole"]], [])

    run(body, tmp_path)


def test_what_changed_before_the_first_look_is_not_lost(tmp_path: Path):
    async def body(file: Path) -> None:
        since = load_config(file, environ={})
        write(file, text("b"))
        async with watching(file, since) as watch:
            await watch.look(2)
            assert watch.found == [["b"]]

    run(body, tmp_path)


def test_a_file_that_is_broken_from_the_start_is_told_and_waited_for(tmp_path: Path):
    async def body(file: Path) -> None:
        write(file, "{")
        async with watching(file) as watch:
            assert len(watch.told) == 1
            write(file, text("a"))
            await watch.look()
            assert watch.found == [["a"]]

    run(body, tmp_path)


def test_the_loop_is_free_while_a_file_is_read(tmp_path: Path):
    async def body(file: Path) -> None:
        os.mkfifo(file.with_name("pipe"))
        told: list[ConfigError] = []
        looks = asyncio.Event()

        async def pause() -> None:
            looks.set()
            await asyncio.Event().wait()

        stream = watch_config(file.with_name("pipe"), on_error=told.append, pause=pause)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.wait_for(looks.wait(), BOUND)
        task.cancel()
        await asyncio.wait([task], timeout=BOUND)
        assert "not a regular file" in str(told[0])

    run(body, tmp_path)


def test_a_file_of_variables_is_watched_too_before_it_is_there_as_well(tmp_path: Path):
    said = '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "envFile": ".env"}}}'
    values: list[str | None] = []

    async def body(file: Path) -> None:
        beside = file.with_name(".env")
        write(file, said)

        async def seen() -> None:
            async for config in watch_config(file, environ={}, pause=watch.pause):
                values.extend([one.env.get("A") for one in config.servers if one.name == "b"] or [None])

        watch = Watch(file)
        task = asyncio.create_task(seen())
        try:
            await watch.begun()
            for written in ("A=1", "A=2", "A=2 # the same", None):
                await asyncio.to_thread(gone, beside) if written is None else write(beside, written)
                await watch.look(8)
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=BOUND)

    run(body, tmp_path)
    assert values == ["1", "2", None]
