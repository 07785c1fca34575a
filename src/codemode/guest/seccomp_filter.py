"""Assembles the worker's seccomp filter: an allow-list of eight system calls. Pure.

Loaded by path in worker processes: standard library only.
"""

from __future__ import annotations

import struct

CHANNEL_FD = 3

RETURN_KILL_PROCESS = 0x80000000
RETURN_ALLOW = 0x7FFF0000

# Derived by tracing a worker under glibc; musl's allocator also gives pages back and protects them.
ALLOWED_CALLS = ("read", "write", "mmap", "munmap", "mremap", "brk", "clock_gettime", "exit_group")
MUSL_CALLS = ("madvise", "mprotect")

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SYSTEM_CALL_NUMBERS = {
    "x86_64": {
        "read": 0,
        "write": 1,
        "mmap": 9,
        "mprotect": 10,
        "munmap": 11,
        "brk": 12,
        "mremap": 25,
        "madvise": 28,
        "clock_gettime": 228,
        "exit_group": 231,
    },
    "aarch64": {
        "read": 63,
        "write": 64,
        "exit_group": 94,
        "clock_gettime": 113,
        "brk": 214,
        "munmap": 215,
        "mremap": 216,
        "mmap": 222,
        "mprotect": 226,
        "madvise": 233,
    },
}
_X32_BIT = 0x40000000

# Offsets in struct seccomp_data.
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16

# BPF operations (linux/bpf_common.h): load word, jump if equal / >= / any bit set, return.
_LOAD, _JUMP_EQUAL, _JUMP_NOT_BELOW, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_PROT_EXEC = 0x4
_PRIVATE_ANONYMOUS = 0x22


def assemble_filter(machine: str, *, musl: bool) -> bytes:
    """The filter as an array of `struct sock_filter`. Everything it does not name kills the process.

    Raises OSError for a machine (as `os.uname` names it) that no filter is written for.
    """
    if machine not in _AUDIT_ARCH:
        raise OSError(f"no system call filter for machine type {machine}")
    numbers = SYSTEM_CALL_NUMBERS[machine]
    program = _assemble_architecture_check(machine)
    for name in ALLOWED_CALLS + (MUSL_CALLS if musl else ()):
        body = _assemble_argument_checks(name) + _pack_instruction(_RETURN, RETURN_ALLOW)
        program += _pack_instruction(_JUMP_EQUAL, numbers[name], 0, len(body) // 8) + body
    return program + _pack_instruction(_RETURN, RETURN_KILL_PROCESS)


def _assemble_architecture_check(machine: str) -> bytes:
    # A 32-bit entry (int 0x80) or the x32 ABI would give the same numbers another meaning.
    program = (
        _pack_instruction(_LOAD, _ARCH_OFFSET)
        + _pack_instruction(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0)
        + _pack_instruction(_RETURN, RETURN_KILL_PROCESS)
        + _pack_instruction(_LOAD, _NUMBER_OFFSET)
    )
    if machine == "x86_64":
        program += _pack_instruction(_JUMP_NOT_BELOW, _X32_BIT, 0, 1) + _pack_instruction(_RETURN, RETURN_KILL_PROCESS)
    return program


def _assemble_argument_checks(name: str) -> bytes:
    if name in ("read", "write"):
        return _assemble_argument_equality_check(0, CHANNEL_FD)
    if name == "mmap":
        return _assemble_zero_bits_check(2, _PROT_EXEC) + _assemble_argument_equality_check(3, _PRIVATE_ANONYMOUS)
    if name == "mprotect":
        return _assemble_zero_bits_check(2, _PROT_EXEC)
    return b""


def _assemble_argument_equality_check(argument: int, value: int) -> bytes:
    """All 64 bits of the argument are `value`."""
    low = _ARGUMENTS_OFFSET + 8 * argument
    return _assemble_word_equality_check(low, value) + _assemble_word_equality_check(low + 4, 0)


def _assemble_word_equality_check(offset: int, value: int) -> bytes:
    return (
        _pack_instruction(_LOAD, offset)
        + _pack_instruction(_JUMP_EQUAL, value, 1, 0)
        + _pack_instruction(_RETURN, RETURN_KILL_PROCESS)
    )


def _assemble_zero_bits_check(argument: int, mask: int) -> bytes:
    return (
        _pack_instruction(_LOAD, _ARGUMENTS_OFFSET + 8 * argument)
        + _pack_instruction(_JUMP_ANY_BIT, mask, 0, 1)
        + _pack_instruction(_RETURN, RETURN_KILL_PROCESS)
    )


def _pack_instruction(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
