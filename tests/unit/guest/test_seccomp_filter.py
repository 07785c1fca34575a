"""The assembled filter, run by a small BPF interpreter against system calls."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.guest import seccomp_filter
from codemode.guest.seccomp_filter import RETURN_ALLOW, RETURN_KILL_PROCESS, SYSTEM_CALL_NUMBERS, assemble_filter

AUDIT_X86_64, AUDIT_AARCH64, AUDIT_I386 = 0xC000003E, 0xC00000B7, 0x40000003
AUDIT = {"x86_64": AUDIT_X86_64, "aarch64": AUDIT_AARCH64}
MACHINES = sorted(AUDIT)
MAX_64 = (1 << 64) - 1


def run_filter(program: bytes, arch: int, number: int, args: tuple[int, ...]) -> int:
    """Interpret classic BPF over one struct seccomp_data; fails on anything the kernel would refuse to load."""
    padded = (*args, *[0] * (6 - len(args)))
    data = struct.pack("=IIQ6Q", number, arch, 0, *padded)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, counter = 0, 0
    while True:
        operation, if_true, if_false, value = instructions[counter]
        counter += 1
        if operation == 0x20:
            assert value % 4 == 0
            assert value < 64
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif operation == 0x15:
            counter += if_true if accumulator == value else if_false
        elif operation == 0x35:
            counter += if_true if accumulator >= value else if_false
        elif operation == 0x45:
            counter += if_true if accumulator & value else if_false
        elif operation == 0x06:
            return value
        else:
            raise AssertionError(f"unknown operation {operation:#x}")


def is_allowed(machine: str, name: str, *args: int, musl: bool = False) -> bool:
    number = SYSTEM_CALL_NUMBERS[machine][name]
    return run_filter(assemble_filter(machine, musl=musl), AUDIT[machine], number, args) == RETURN_ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_channel_is_read_and_written(machine: str) -> None:
    for name in ("read", "write"):
        assert is_allowed(machine, name, 3, 0x7F0000000000, 65536)
        for descriptor in (0, 1, 2, 4, 3 | 1 << 32, MAX_64):
            assert not is_allowed(machine, name, descriptor)


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_is_private_anonymous_and_never_executable(machine: str) -> None:
    assert is_allowed(machine, "mmap", 0, 4096, 3, 0x22, MAX_64, 0)
    assert is_allowed(machine, "mmap", 0, 4096, 0, 0x22)
    for protection in (4, 5, 6, 7):
        assert not is_allowed(machine, "mmap", 0, 4096, protection, 0x22)
    for flags in (0x02, 0x01, 0x21, 0x32, 0x22 | 1 << 32, 0x22 | 0x40000):
        assert not is_allowed(machine, "mmap", 0, 4096, 3, flags)


@pytest.mark.parametrize("machine", MACHINES)
def test_musl_gets_two_more_calls_and_still_no_executable_memory(machine: str) -> None:
    assert not is_allowed(machine, "mprotect", 0, 4096, 3)
    assert not is_allowed(machine, "madvise", 0, 4096, 4)
    assert is_allowed(machine, "mprotect", 0, 4096, 3, musl=True)
    assert is_allowed(machine, "madvise", 0, 4096, 4, musl=True)
    assert not is_allowed(machine, "mprotect", 0, 4096, 7, musl=True)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("musl", [False, True])
def test_every_call_outside_the_list_kills(machine: str, *, musl: bool) -> None:
    program = assemble_filter(machine, musl=musl)
    names = seccomp_filter.ALLOWED_CALLS + (seccomp_filter.MUSL_CALLS if musl else ())
    listed = {SYSTEM_CALL_NUMBERS[machine][name] for name in names}
    for number in range(1024):
        if number not in listed:
            assert run_filter(program, AUDIT[machine], number, (3, 0, 0, 0x22)) == RETURN_KILL_PROCESS


@given(
    number=st.integers(0, 0xFFFFFFFF),
    args=st.lists(st.integers(0, MAX_64), min_size=6, max_size=6),
    arch=st.sampled_from([AUDIT_X86_64, AUDIT_AARCH64, AUDIT_I386, 0]),
    machine=st.sampled_from(MACHINES),
)
def test_another_architecture_or_abi_kills(number: int, args: list[int], arch: int, machine: str) -> None:
    verdict = run_filter(assemble_filter(machine, musl=False), arch, number, tuple(args))
    assert verdict in (RETURN_ALLOW, RETURN_KILL_PROCESS)
    if arch != AUDIT[machine] or number >= 0x40000000:
        assert verdict == RETURN_KILL_PROCESS


def test_numbers_of_x32_allowed_calls_kill() -> None:
    program = assemble_filter("x86_64", musl=False)
    for number in SYSTEM_CALL_NUMBERS["x86_64"].values():
        assert run_filter(program, AUDIT_X86_64, number | 0x40000000, (3, 0, 3, 0x22)) == RETURN_KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("musl", [False, True])
def test_the_kernel_can_load_it(machine: str, *, musl: bool) -> None:
    program = assemble_filter(machine, musl=musl)
    instructions = list(struct.iter_unpack("=HBBI", program))
    assert len(program) % 8 == 0
    assert len(instructions) < 100
    for position, (operation, if_true, if_false, _value) in enumerate(instructions):
        if operation in (0x15, 0x35, 0x45):
            assert position + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == 0x06


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(OSError, match="riscv64"):
        assemble_filter("riscv64", musl=False)
