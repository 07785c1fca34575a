"""Ask `WarmCommands` for a process, pass signals on to it, and end as it ends: ``warm_launcher.py SOCKET COMMAND``."""

import os
import signal
import sys
from contextlib import suppress
from socket import AF_UNIX, SOCK_SEQPACKET, send_fds, socket

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(place: str, *command: str) -> None:
    asked = socket(AF_UNIX, SOCK_SEQPACKET)
    asked.connect(place)

    def pass_on(number: int, _frame: object) -> None:
        with suppress(OSError):  # it may have ended already
            asked.send(bytes([number]))

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    folder = os.getcwd()  # noqa: PTH109 - what is imported here is imported for every command
    parts = folder, str(len(command)), *command, *(f"{key}={value}" for key, value in os.environ.items())
    send_fds(asked, [os.fsencode("\0".join(parts))], [0, 1, 2])
    for stream in range(3):
        os.close(stream)
    code = os.waitstatus_to_exitcode(int(asked.recv(16) or b"9"))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


main(*sys.argv[1:])
