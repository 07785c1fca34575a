"""A host in a container that forbids system calls: says what its workers report, and whether `required` is met.

Argument 1: JSON, ``{"start_method": ..., "denied": [names of system calls, or "install a filter"]}``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import sys

from codemode import WorkerPool, run_code_mode_sync
from codemode.errors import CodeModeWorkerError

_NUMBERS = {
    "x86_64": {"unshare": 272, "landlock_create_ruleset": 444, "close_range": 436, "setresuid": 117, "setgroups": 116,
               "prlimit64": 302, "capset": 126, "prctl": 157},
    "aarch64": {"unshare": 97, "landlock_create_ruleset": 444, "close_range": 436, "setresuid": 147, "setgroups": 159,
                "prlimit64": 261, "capset": 91, "prctl": 167},
}[os.uname().machine]  # fmt: skip
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


def forbid(denied: list[str]) -> None:
    """Refuse these system calls with EPERM, as a container's profile does, in this process and all that it starts."""
    code: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _NUMBER_AT)]
    for name in denied:
        if name != "install a filter":
            code += [(_JUMP_IF_EQUAL, 0, 1, _NUMBERS[name]), (_RETURN, 0, 0, _REFUSE)]
    if "install a filter" in denied:
        code += [
            (_JUMP_IF_EQUAL, 0, 3, _NUMBERS["prctl"]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
            (_JUMP_IF_EQUAL, 0, 1, _PR_SET_SECCOMP),
            (_RETURN, 0, 0, _REFUSE),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(buffer)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    assert prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program), 0, 0) == 0, os.strerror(ctypes.get_errno())


def main() -> None:
    request = json.loads(sys.argv[1])
    forbid(request["denied"])
    pool = WorkerPool({"start_method": request["start_method"]})
    value = run_code_mode_sync("return 6 * 7", (), pool=pool)
    assert pool.isolation is not None
    report = {layer.name: str(layer.state) for layer in pool.isolation.layers}
    pool.close()
    strict = WorkerPool({"start_method": request["start_method"], "isolation": "required"})
    try:
        required = run_code_mode_sync("return 6 * 7", (), pool=strict)
    except CodeModeWorkerError as error:
        required = error.message
    strict.close()
    print(json.dumps({"value": value, "report": report, "required": required}))


if __name__ == "__main__":
    main()
