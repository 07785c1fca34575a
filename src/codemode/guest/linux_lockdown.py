"""Confines this process on Linux, from Python through ctypes.

Loaded by path in worker processes: standard library only, nothing that is not needed after the lock. Knows nothing of
frames, the engine or the host.

Two halves, in this order:

`apply_shared_lockdown` is irreversible and inherited by fork; the zygote applies it once. Environment, namespaces, user
id and capabilities, dumpability, no-new-privs, Landlock, resource limits. The order is forced: namespaces need the
capabilities that the user-id drop takes away, a changed user id resets dumpability, Landlock without capabilities needs
no-new-privs.

A worker applies `FinalLockdown` after the last fork: one descriptor, parent-death signal (cleared by fork), the two
limits under which the zygote could not do its own work, and last the system call filter. The filter is assembled
beforehand, so that the child makes eight system calls and allocates next to nothing.

Every layer becomes a line in a report, "in force" or "refused by the environment" with the reason. A refusal is never
an exception: the caller decides whether the other layers are enough.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Loaded by path before this file: here is no search path to find it on.
_layers = sys.modules["layers"]
IN_FORCE: str = _layers.IN_FORCE
REFUSED: str = _layers.REFUSED
REQUIRED_LAYERS: tuple[str, ...] = _layers.REQUIRED_LAYERS

_NOBODY = 65534
_ADDRESS_SPACE_BYTES = 5 << 28  # a quarter more than the largest heap: the engine must notice first
_CPU_SECONDS = 3600
# Every descriptor in flight between zygote and host counts against this limit, for all zygotes of one user.
_ZYGOTE_DESCRIPTORS = 1024

_SHARED_LIMITS = {
    "AS": _ADDRESS_SPACE_BYTES,
    "CPU": _CPU_SECONDS,
    "FSIZE": 0,
    "CORE": 0,
    "MEMLOCK": 0,
    "MSGQUEUE": 0,
    "NOFILE": _ZYGOTE_DESCRIPTORS,
}
# Zero of these in the zygote would stop it from forking and from taking a worker's socket.
_FINAL_LIMITS = ("NPROC", "NOFILE")

_SIGKILL = 9
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWUSER = 0x10000000
_NAMESPACES = {"net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000, "mnt": 0x00020000}
_CAPABILITY_VERSION_3 = 0x20080522

# These numbers are the same on every architecture.
_CLOSE_RANGE, _LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 436, 444, 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LAST_DESCRIPTOR = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_syscall = _libc.syscall
_syscall.argtypes = [ctypes.c_long] * 4
_syscall.restype = ctypes.c_long
_unshare = _libc.unshare
_unshare.argtypes = [ctypes.c_int]


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


class _LayerApplier:
    """Layer by layer what happened; `skip` names layers to treat as if the environment forbade them."""

    def __init__(self, skip: frozenset[str]) -> None:
        self.layers: dict[str, str] = {}
        self._skip = skip

    def apply_layer_and_record_result(self, layer: str, action: object) -> None:
        try:
            if layer in self._skip:
                _raise_permission_error()
            detail = action()  # type: ignore[operator]  # a bare callable keeps `typing` out of the zygote
        except (OSError, ValueError) as error:
            self.layers[layer] = describe_refusal(error)
        else:
            self.layers[layer] = f"{IN_FORCE}: {detail}" if detail else IN_FORCE


def _raise_permission_error() -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def describe_refusal(error: Exception) -> str:
    """The report line for a layer that could not be applied."""
    return f"{REFUSED}: {error}"


def find_missing_required_layers(report: dict[str, str]) -> list[str]:
    """The required layers that `report` does not show in force."""
    return [layer for layer in REQUIRED_LAYERS if not report.get(layer, "").startswith(IN_FORCE)]


def apply_shared_lockdown(skip: frozenset[str] = frozenset()) -> dict[str, str]:
    """Apply everything that forked workers inherit; the report names the layers dealt with here."""
    os.environ.clear()
    report = _LayerApplier(skip)
    report.apply_layer_and_record_result("namespaces", _enter_namespaces)
    report.apply_layer_and_record_result("uid-drop", _drop_user_and_capabilities)
    report.apply_layer_and_record_result("not-dumpable", lambda: _call_prctl(_PR_SET_DUMPABLE, 0))
    report.apply_layer_and_record_result("no-new-privs", lambda: _call_prctl(_PR_SET_NO_NEW_PRIVS, 1))
    report.apply_layer_and_record_result("landlock", _apply_empty_landlock_ruleset)
    report.apply_layer_and_record_result("rlimits", _set_shared_resource_limits)
    return report.layers


def _require_success(result: int, operation: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{operation}: {os.strerror(code)}")
    return result


def _call_prctl(option: int, value: int, third: int = 0) -> None:
    _require_success(_prctl(option, value, third, 0, 0), f"prctl {option}")


def _enter_namespaces() -> str:
    entered_names: list[str] = []
    if os.geteuid() != 0:
        _require_success(_unshare(_CLONE_NEWUSER), "unshare user")
        entered_names.append("user")
    # No pid namespace: its first process is its init, and the next fork after that one's death fails.
    entered_names += [name for name, flag in _NAMESPACES.items() if _unshare(flag) == 0]
    if not entered_names:
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    return ", ".join(entered_names)


def _drop_user_and_capabilities() -> str:
    uid = os.geteuid()
    if uid == 0:
        _drop_capability_bounding_set()
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    # A new user namespace gave a full set of capabilities inside it.
    _drop_capabilities()
    if uid != 0:
        raise OSError(errno.EPERM, "only root can change its user id; capabilities are dropped")
    return f"uid {_NOBODY}, no capabilities"


def _drop_capability_bounding_set() -> None:
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def _drop_capabilities() -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    none = ctypes.create_string_buffer(24)
    _require_success(_libc.capset(header, none), "capset")


def _apply_empty_landlock_ruleset() -> str:
    """A Landlock ruleset with no rules: it denies everything that it handles."""
    abi = _require_success(_syscall(_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_CREATE_RULESET_VERSION), "landlock")
    attributes = _pack_landlock_attributes(abi)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = _require_success(
        _syscall(_LANDLOCK_CREATE_RULESET, ctypes.addressof(buffer), len(attributes), 0),
        "landlock_create_ruleset",
    )
    try:
        _require_success(_syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return f"ABI {abi}"


def _pack_landlock_attributes(abi: int) -> bytes:
    file_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    attributes = struct.pack("=Q", (1 << file_rights) - 1)
    if abi >= 4:
        attributes += struct.pack("=Q", 0b11)  # TCP bind and connect
    if abi >= 6:
        attributes += struct.pack("=Q", 0b11)  # abstract unix sockets and signals to the outside
    return attributes


def _set_shared_resource_limits() -> str:
    for name, value in _SHARED_LIMITS.items():
        _lower_resource_limit(name, value)
    return ""


def _lower_resource_limit(name: str, value: int) -> None:
    limit = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


class FinalLockdown:
    """The lock that one worker applies after the last fork.

    `filter_program` is the filter, or the reason for its absence. `parent_pid`: die with this parent. The signal
    follows the thread that forked, so that thread must last as long as its process: the only one of the zygote, the
    starter's of the host.
    """

    def __init__(self, filter_program: bytes | OSError, parent_pid: int, skip: frozenset[str] = frozenset()) -> None:
        self._parent_pid = parent_pid
        self._filter_program = filter_program if sys.maxsize > 1 << 32 else OSError("no system call filter for 32 bits")
        if isinstance(self._filter_program, bytes):
            self._instructions = ctypes.create_string_buffer(self._filter_program, len(self._filter_program))
            address = ctypes.addressof(self._instructions)
            self._filter = _FilterProgram(len(self._filter_program) // 8, address)
            self._filter_address = ctypes.addressof(self._filter)
        self._limits = [getattr(resource, "RLIMIT_" + name) for name in _FINAL_LIMITS]
        # Made here, and of calls that need no further Python: what a fork makes or runs costs it pages of memory.
        self._lockdown_steps = [
            (layer, _raise_permission_error if layer in skip else step) for layer, step in self._build_lockdown_steps()
        ]

    def build_expected_report(self) -> dict[str, str]:
        """The report of these layers when `apply` returns no refusal."""
        return {"one-descriptor": IN_FORCE, "parent-death-signal": IN_FORCE, "seccomp": IN_FORCE}

    def apply(self, channel_fd: int) -> dict[str, str]:
        """Lock the process onto `channel_fd`, moved to descriptor 3; returns the layers that were refused."""
        refusals: dict[str, str] = {}
        if channel_fd != 3:
            os.dup2(channel_fd, 3)
        for layer, step in self._lockdown_steps:
            try:
                if step() == -1:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            except (OSError, ValueError) as error:
                refusals[layer] = describe_refusal(error)
        return refusals

    def _build_lockdown_steps(self) -> list[tuple[str, Callable[[], object]]]:
        """Layer and what is to be called for it; -1 or an error: the environment refuses it."""
        return [
            *(
                ("one-descriptor", _make_close_range_step(first, last))
                for first, last in ((4, _LAST_DESCRIPTOR), (0, 2))
            ),
            ("parent-death-signal", partial(_prctl, _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)),
            ("parent-death-signal", self._exit_if_orphaned),
            *(("rlimits", partial(resource.setrlimit, which, (0, 0))) for which in self._limits),
            ("seccomp", self._make_seccomp_step()),
        ]

    def _exit_if_orphaned(self) -> None:
        if os.getppid() != self._parent_pid:  # it died before the signal was armed
            os._exit(3)

    def _make_seccomp_step(self) -> Callable[[], object]:
        if isinstance(self._filter_program, OSError):
            return partial(_raise_error, self._filter_program)
        return partial(_prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._filter_address, 0, 0)


def _make_close_range_step(first: int, last: int) -> Callable[[], object]:
    # Old container profiles refuse close_range; descriptors end at the limit set in `apply_shared_lockdown`.
    if _syscall(_CLOSE_RANGE, _LAST_DESCRIPTOR, _LAST_DESCRIPTOR, 0) != 0:
        return partial(os.closerange, first, min(last + 1, _ZYGOTE_DESCRIPTORS))
    return partial(_syscall, _CLOSE_RANGE, first, last, 0)


def _raise_error(error: OSError) -> None:
    raise error
