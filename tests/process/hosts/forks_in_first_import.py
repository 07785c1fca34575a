"""A host that forks while another thread imports what runs its first program; the child runs one too."""

import os
import signal
import sys
import threading

import codemode

CHILD_SECONDS = 60
# How long the import stays in the middle when the fork waits for it, as it should.
IN_THE_MIDDLE_SECONDS = 0.3

arrived, forked = threading.Event(), threading.Event()


class Stop:
    """Holds an import up, once."""

    def find_spec(self, name, _path=None, _target=None):
        if name == "codemode.execution.runner" and not arrived.is_set():
            arrived.set()
            forked.wait(IN_THE_MIDDLE_SECONDS)


def main():
    assert "codemode.execution.runner" not in sys.modules
    sys.meta_path.insert(0, Stop())
    thread = threading.Thread(target=lambda: codemode.run_code_mode_sync("return 1", {}))
    thread.start()
    assert arrived.wait(CHILD_SECONDS)
    pid = os.fork()
    if pid == 0:
        signal.alarm(CHILD_SECONDS)
        os._exit(0 if codemode.run_code_mode_sync("return 2", {}) == 2 else 1)
    forked.set()
    _, status = os.waitpid(pid, 0)
    thread.join(CHILD_SECONDS)
    assert status == 0, status
    print("ok")


if __name__ == "__main__":
    main()
