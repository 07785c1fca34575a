"""A process that keeps private: what another one of the same user may read of it."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from codemode_gateway.cli import serve as mcp_serve

READS = """
import ctypes, os
from codemode_gateway.cli.serve import disable_process_inspection

if os.geteuid() == 0:  # whom nothing is kept from
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as every process is that was started


def reads_of_its_parent():
    child = os.fork()
    if child == 0:
        try:
            with open(f"/proc/{os.getppid()}/environ", "rb") as environment:
                os._exit(b"TOKEN=hidden" in environment.read())
        except PermissionError:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


print(reads_of_its_parent(), disable_process_inspection(), reads_of_its_parent())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has this")
def test_no_process_of_the_same_user_reads_the_environment_of_one_that_keeps_private():
    read = subprocess.run([sys.executable, "-c", READS], env={"TOKEN": "hidden"}, capture_output=True, text=True)
    assert (read.stdout, read.stderr) == ("1 True 2\n", "")


def test_the_gateway_keeps_private_before_all_else(monkeypatch: pytest.MonkeyPatch):
    class Kept(Exception):
        pass

    def kept() -> bool:
        raise Kept

    monkeypatch.setattr(mcp_serve, "disable_process_inspection", kept)
    with pytest.raises(Kept):
        mcp_serve.run_serve_command(argparse.Namespace())
