"""What native code would try from inside a locked worker, as raw system calls.

Three faces: the test hook that a zygote loads by path (``main``), the list for the tests, and a script that tries
everything and prints the outcomes as JSON. Everything an attempt needs is bound before the lock.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
HOST = os.getppid()  # in the zygote, where this is loaded for use, its parent is the host

# name: number on x86_64, number on aarch64 (None: does not exist there)
_NUMBERS = {
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "creat": (85, None), "readlink": (89, None),
    "stat": (4, None), "unlinkat": (263, 35), "mkdirat": (258, 34), "chmod": (90, None), "getdents64": (217, 61),
    "name_to_handle_at": (303, 264), "inotify_init1": (294, 26), "socket": (41, 198), "socketpair": (53, 199),
    "connect": (42, 203), "bind": (49, 200), "sendmsg": (46, 211), "recvmsg": (47, 212), "sendto": (44, 206),
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435), "execve": (59, 221),
    "execveat": (322, 281), "kill": (62, 129), "tgkill": (234, 131), "tkill": (200, 130), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "mmap": (9, 222), "mprotect": (10, 226), "pkey_mprotect": (329, 288),
    "memfd_create": (319, 279), "io_uring_setup": (425, 425), "bpf": (321, 280), "keyctl": (250, 219),
    "add_key": (248, 217), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "mount": (165, 40),
    "umount2": (166, 39), "fsopen": (430, 430), "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51),
    "pivot_root": (155, 41), "dup": (32, 23), "dup3": (292, 24), "fcntl": (72, 25), "ioctl": (16, 29),
    "prctl": (157, 167), "seccomp": (317, 277), "prlimit64": (302, 261), "setuid": (105, 146), "capset": (126, 91),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "timer_create": (222, 107),
    "setitimer": (38, 103), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "pipe2": (293, 59), "eventfd2": (290, 19), "epoll_create1": (291, 20), "signalfd4": (289, 74),
    "rt_sigaction": (13, 134), "rt_sigreturn": (15, 139), "futex": (202, 98), "nanosleep": (35, 101),
    "getpid": (39, 172), "uname": (63, 160), "sysinfo": (99, 179), "getrandom": (318, 278), "personality": (135, 92),
    "reboot": (169, 142), "init_module": (175, 105), "kexec_load": (246, 104), "swapon": (167, 224),
    "sethostname": (170, 161), "settimeofday": (164, 170), "quotactl": (179, 60), "acct": (163, 89),
    "syslog": (103, 116), "landlock_create_ruleset": (444, 444), "memfd_secret": (447, 447),
    "process_madvise": (440, 440), "modify_ldt": (154, None), "arch_prctl": (158, None), "iopl": (172, None),
    "read": (0, 63), "write": (1, 64), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66),
    "sendfile": (40, 71), "splice": (275, 76),
}  # fmt: skip
_COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]

_buffer = ctypes.create_string_buffer(4096)
_path = ctypes.create_string_buffer(b"/etc/passwd")
_proc = ctypes.create_string_buffer(b"/proc/self/maps")
_shell = ctypes.create_string_buffer(b"/bin/sh")
_new = ctypes.create_string_buffer(b"/tmp/codemode-escape")
_root = ctypes.create_string_buffer(b"/")
_none = (ctypes.c_void_p * 2)()
_vector = (ctypes.c_ulong * 2)(ctypes.addressof(_buffer), 8)
_at = -100
_page = 4096
_anonymous, _shared_channel = 0x22, 0x01

Attempt = tuple[str, tuple[object, ...]]


def _address(buffer: object) -> int:
    return ctypes.addressof(buffer)  # type: ignore[arg-type]


_b, _p, _v = _address(_buffer), _address(_path), _address(_vector)
_ATTEMPTS: dict[str, Attempt] = {
    "open a file": ("open", (_p, 0)),
    "openat a file": ("openat", (_at, _p, 0)),
    "openat2 a file": ("openat2", (_at, _p, _b, 24)),
    "open /proc/self/maps": ("openat", (_at, _address(_proc), 0)),
    "create a file": ("openat", (_at, _address(_new), 0o101, 0o600)),
    "creat": ("creat", (_address(_new), 0o600)),
    "open a directory": ("openat", (_at, _address(_root), 0o200000)),
    "readlink": ("readlink", (_address(_proc), _b, 100)),
    "stat": ("stat", (_p, _b)),
    "unlink": ("unlinkat", (_at, _address(_new), 0)),
    "mkdir": ("mkdirat", (_at, _address(_new), 0o700)),
    "chmod": ("chmod", (_p, 0o777)),
    "getdents64": ("getdents64", (3, _b, 4096)),
    "file handle": ("name_to_handle_at", (_at, _p, _b, _b, 0)),
    "inotify": ("inotify_init1", (0,)),
    "internet socket": ("socket", (2, 1, 0)),
    "unix socket": ("socket", (1, 1, 0)),
    "netlink socket": ("socket", (16, 3, 0)),
    "packet socket": ("socket", (17, 3, 0)),
    "socketpair": ("socketpair", (1, 1, 0, _b)),
    "connect the channel": ("connect", (3, _b, 16)),
    "bind the channel": ("bind", (3, _b, 16)),
    "sendmsg on the channel": ("sendmsg", (3, _b, 0)),
    "recvmsg on the channel": ("recvmsg", (3, _b, 0)),
    "sendto on the channel": ("sendto", (3, _b, 0, 0, 0, 0)),
    "fork": ("fork", ()),
    "vfork": ("vfork", ()),
    "clone": ("clone", (17, 0, 0, 0, 0)),
    "clone a thread": ("clone", (0x50F00, _b, 0, 0, 0)),
    "clone3": ("clone3", (_b, 64)),
    "execve": ("execve", (_address(_shell), _address(_none), _address(_none))),
    "execveat": ("execveat", (_at, _address(_shell), _address(_none), _address(_none), 0)),
    "signal the host": ("kill", (HOST, 0)),
    "signal everybody": ("kill", (-1, 0)),
    "signal init": ("kill", (1, 0)),
    "tgkill the host": ("tgkill", (HOST, HOST, 0)),
    "tkill the host": ("tkill", (HOST, 0)),
    "ptrace the host": ("ptrace", (16, HOST, 0, 0)),
    "ptrace traceme": ("ptrace", (0, 0, 0, 0)),
    "read the host's memory": ("process_vm_readv", (HOST, _v, 1, _v, 1, 0)),
    "write the host's memory": ("process_vm_writev", (HOST, _v, 1, _v, 1, 0)),
    "pidfd of the host": ("pidfd_open", (HOST, 0)),
    "steal a descriptor": ("pidfd_getfd", (3, 0, 0)),
    "mmap executable": ("mmap", (0, _page, 7, _anonymous, -1, 0)),
    "mmap read and execute": ("mmap", (0, _page, 5, _anonymous, -1, 0)),
    "mmap the channel": ("mmap", (0, _page, 3, _shared_channel, 3, 0)),
    "mmap shared": ("mmap", (0, _page, 3, 0x21, -1, 0)),
    "mprotect executable": ("mprotect", (_b & ~0xFFF, _page, 7)),
    "pkey_mprotect executable": ("pkey_mprotect", (_b & ~0xFFF, _page, 7, -1)),
    "memfd_create": ("memfd_create", (_p, 0)),
    "memfd_secret": ("memfd_secret", (0,)),
    "io_uring_setup": ("io_uring_setup", (4, _b)),
    "bpf": ("bpf", (0, _b, 64)),
    "keyctl": ("keyctl", (0, -3, 0)),
    "add_key": ("add_key", (_p, _p, _b, 1, -3)),
    "userfaultfd": ("userfaultfd", (1,)),
    "perf_event_open": ("perf_event_open", (_b, 0, -1, -1, 0)),
    "mount": ("mount", (_address(_root), _address(_root), 0, 4096, 0)),
    "umount": ("umount2", (_address(_root), 0)),
    "fsopen": ("fsopen", (_p, 0)),
    "unshare a user namespace": ("unshare", (0x10000000,)),
    "unshare the network": ("unshare", (0x40000000,)),
    "setns": ("setns", (3, 0)),
    "chroot": ("chroot", (_address(_root),)),
    "pivot_root": ("pivot_root", (_address(_root), _address(_root))),
    "dup the channel": ("dup", (3,)),
    "dup3 the channel": ("dup3", (3, 5, 0)),
    "fcntl dup": ("fcntl", (3, 0, 0)),
    "ioctl on the channel": ("ioctl", (3, 0x541B, _b)),
    "prctl dumpable": ("prctl", (4, 1, 0, 0, 0)),
    "drop the parent-death signal": ("prctl", (1, 0, 0, 0, 0)),
    "another filter": ("seccomp", (1, 0, _b)),
    "raise a limit": ("prlimit64", (0, 7, _b, 0)),
    "setuid 0": ("setuid", (0,)),
    "capset": ("capset", (_b, _b)),
    "sched_setaffinity": ("sched_setaffinity", (0, 128, _b)),
    "sched_setscheduler": ("sched_setscheduler", (0, 1, _b)),
    "timer_create": ("timer_create", (0, 0, _b)),
    "setitimer": ("setitimer", (0, 0, 0)),
    "shmget": ("shmget", (0, 4096, 0o1600)),
    "msgget": ("msgget", (0, 0o1600)),
    "semget": ("semget", (0, 1, 0o1600)),
    "mq_open": ("mq_open", (_p, 0o100, 0o600, 0)),
    "pipe2": ("pipe2", (_b, 0)),
    "eventfd": ("eventfd2", (0, 0)),
    "epoll": ("epoll_create1", (0,)),
    "signalfd": ("signalfd4", (-1, _b, 8, 0)),
    "sigaction": ("rt_sigaction", (10, 0, _b, 8)),
    "sigreturn": ("rt_sigreturn", ()),
    "futex": ("futex", (_b, 1, 1, 0, 0, 0)),
    "nanosleep": ("nanosleep", (_b + 2048, 0)),
    "getpid": ("getpid", ()),
    "uname": ("uname", (_b,)),
    "sysinfo": ("sysinfo", (_b,)),
    "getrandom": ("getrandom", (_b, 16, 0)),
    "personality": ("personality", (0xFFFFFFFF,)),
    "reboot": ("reboot", (0, 0, 0, 0)),
    "load a kernel module": ("init_module", (_b, 0, _p)),
    "kexec": ("kexec_load", (0, 0, 0, 0)),
    "swapon": ("swapon", (_p, 0)),
    "sethostname": ("sethostname", (_p, 4)),
    "settimeofday": ("settimeofday", (_b, 0)),
    "quotactl": ("quotactl", (0, 0, 0, 0)),
    "acct": ("acct", (0,)),
    "read the kernel log": ("syslog", (3, _b, 100)),
    "landlock": ("landlock_create_ruleset", (0, 0, 1)),
    "process_madvise": ("process_madvise", (3, _b, 1, 4, 0)),
    "modify_ldt": ("modify_ldt", (0, _b, 16)),
    "arch_prctl": ("arch_prctl", (0x1003, _b)),
    "iopl": ("iopl", (3,)),
    "read from standard input": ("read", (0, _b, 1)),
    "write to standard output": ("write", (1, _b, 1)),
    "write to standard error": ("write", (2, _b, 1)),
    "read from descriptor 4": ("read", (4, _b, 1)),
    "pread the channel": ("pread64", (3, _b, 1, 0)),
    "readv on the channel": ("readv", (3, _b, 0)),
    "writev on the channel": ("writev", (3, _b, 0)),
    "sendfile": ("sendfile", (3, 0, 0, 1)),
    "splice": ("splice", (3, 0, 3, 0, 1, 0)),
}


def _names() -> list[str]:
    return [name for name, (call, _) in _ATTEMPTS.items() if _NUMBERS[call][_COLUMN] is not None]


# The x32 ABI: the same numbers with a bit set, which a filter that forgets it lets through.
NAMES = _names() + (["x32 getpid", "x32 open", "x32 read"] if _COLUMN == 0 else [])
_X32 = {"x32 getpid": (39, ()), "x32 open": (2, (_p, 0)), "x32 read": (0, (3, _b, 0))}


def _call_of(name: str) -> tuple[int, tuple[object, ...]]:
    if name in _X32:
        number, arguments = _X32[name]
        return 0x40000000 | number, arguments
    call, arguments = _ATTEMPTS[name]
    return _NUMBERS[call][_COLUMN], arguments


_CALLS = [[ctypes.c_long(value) for value in (number, *args)] for number, args in map(_call_of, NAMES)]
LIST_DESCRIPTORS = 0xFFFFFFFF
_SAID = [b"allowed"] + [b"errno %d" % number for number in range(1, 200)]


def main(channel: int) -> None:
    """Try the one attempt that the host names by its index, and say what came of it."""
    attempt = int.from_bytes(os.read(channel, 4), "big")
    if attempt == LIST_DESCRIPTORS:
        os.write(channel, json.dumps([number for number in range(4096) if _is_open(number)]).encode())
        os._exit(0)
    result = libc.syscall(*_CALLS[attempt])
    if result == 0 and NAMES[attempt] in ("fork", "clone", "clone3"):
        os._exit(0)  # the child: its parent speaks
    os.write(channel, _SAID[ctypes.get_errno() if result < 0 else 0])
    os._exit(0)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def try_all(skip_layers: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """What came of each attempt, each in a worker of its own: "allowed", "errno N" or how the worker died."""
    from worker_driver import stub_image

    from codemode.workers.zygote import Zygote

    zygote = Zygote(stub_image(), skip_layers=skip_layers, test_hook_path=__file__)
    try:
        return {name: _try_one(zygote.spawn, NAMES.index(name)) for name in names}
    finally:
        zygote.kill()


def _try_one(spawn: Callable[[], object], index: int) -> str:
    from worker_driver import WAIT_MS, read_hello

    worker = spawn()
    try:
        read_hello(worker)
        worker.channel.sendall(index.to_bytes(4, "big"))
        said = worker.channel.recv(100)
        if said:
            return said.decode()
        assert worker.wait_until_dead(WAIT_MS)
        return worker.describe_abnormal_exit()
    finally:
        worker.close()


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps(try_all(tuple(request["skip_layers"]), request["names"])))
