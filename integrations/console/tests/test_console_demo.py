"""The demonstration as a person runs it: one command, a page with something to decide, programs that go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from select import select

import httpx
import pytest
from console_visitors import OWN
from demonstration import DEMO, demonstration

JSON = {"accept": "application/json"}


@contextmanager
def demonstrated(folder: Path) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", str(DEMO), "--port", "0", "--no-browser"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Read what is printed until a line holds a text."""
    assert process.stdout is not None
    while True:
        ready, _, _ = select([process.stdout], [], [], 120)
        assert ready, f"{text} was not printed"
        line = process.stdout.readline()
        assert line, f"it ended before it printed {text}"
        if text in line:
            return line.strip()


def test_what_is_decided_in_the_demonstration_goes_on_and_nothing_is_kept(tmp_path: Path) -> None:
    with demonstrated(tmp_path) as process:
        url, _, token = line_with(process, "Sign in at").split()[-1].partition("/sign-in#token=")
        with httpx.Client(base_url=url, headers=OWN, timeout=60) as browser:
            assert browser.post("/sign-in", data={"token": token}).status_code == 303
            records = browser.get("/", headers=JSON).json()["records"]
            cards = {
                card["tool"]: (record["id"], card)
                for record in records
                for card in browser.get(f"/records/{record['id']}", headers=JSON).json()["requests"]
            }
            assert set(cards) == {"refund", "giveVoucher", "askColleague", "payOut"}
            for name, fields, said in (
                ("giveVoucher", {"decision": "approve"}, "giveVoucher("),
                ("payOut", {"decision": "run-again"}, "payOut("),
                ("askColleague", {"decision": "answer", "json": '{"what": "repair"}', "mode": "json"}, "We repair it"),
            ):
                record_id, card = cards[name]
                form = {"form_token": card["formToken"], "version": card["version"], "shown": card["shown"]}
                path = f"/records/{record_id}/requests/{card['id']}"
                assert browser.post(path, data={**form, **fields}).status_code == 303
                line_with(process, said)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_one_line_that_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = demonstration()

    async def fill(*_: object) -> None:
        """Nothing waits: what cannot be had is the port."""

    monkeypatch.setattr(module, "fill", fill)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["demo_console.py", "--port", port, "--no-browser"])
        with pytest.raises(SystemExit) as ended:
            module.main()
    said = str(ended.value.code)
    assert f"port {port} cannot be had" in said
    assert "--port 0" in said
    assert "\n" not in said
    assert capsys.readouterr().out == ""
