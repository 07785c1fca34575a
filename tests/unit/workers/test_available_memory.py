"""What new processes may use: the least of what the machine and each limit around the host leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemode.workers.pool import read_available_memory_bytes

MIB = 1 << 20
MEMINFO = f"MemTotal: 9 kB\nMemAvailable:   {8 * 1024 * 1024} kB\n"  # 8 GiB
NO_LIMIT = "max\n"
GROUPS_OF_OLD = "9:name=systemd:/x\n4:cpu,memory:/pod/own\n0::/\n"


def machine(folder: Path, groups: str, limits: dict[str, tuple[str, str, str]], *, names: tuple[str, str]) -> int:
    """Return what is available on a machine; ``limits`` are limit, use and statistics by group."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "self" / "cgroup").write_text(groups)
    for group, (most, in_use, told) in limits.items():
        where = cgroups / group
        where.mkdir(parents=True, exist_ok=True)
        for name, text in zip((*names, "memory.stat"), (most, in_use, told), strict=True):
            (where / name).write_text(text)
    return read_available_memory_bytes(str(proc), str(cgroups))


def unified(folder: Path, groups: str, **limits: tuple[str, str, str]) -> int:
    found = {name.replace("__", "/"): one for name, one in limits.items()}
    return machine(folder, groups, found, names=("memory.max", "memory.current"))


def legacy(folder: Path, groups: str, **limits: tuple[str, str, str]) -> int:
    found = {"memory/" + name.replace("__", "/"): one for name, one in limits.items()}
    return machine(folder, groups, found, names=("memory.limit_in_bytes", "memory.usage_in_bytes"))


def test_a_container_has_what_its_limit_leaves(tmp_path: Path):
    own = (f"{4096 * MIB}\n", f"{1000 * MIB}\n", f"anon 1\ninactive_file {300 * MIB}\nactive_file {200 * MIB}\n")
    assert unified(tmp_path, "0::/\n", **{"": own}) == (4096 - 500) * MIB


def test_the_least_of_all_groups_around_counts(tmp_path: Path):
    inner, outer = (f"{4096 * MIB}", f"{MIB}", ""), (f"{1024 * MIB}", f"{24 * MIB}", "")
    assert unified(tmp_path, "0::/pod/own\n", pod__own=inner, pod=outer) == 1000 * MIB


def test_so_in_the_older_kind(tmp_path: Path):
    told = f"cache 1\ntotal_inactive_file {10 * MIB}\ntotal_active_file 0\n"
    assert legacy(tmp_path, GROUPS_OF_OLD, pod__own=(f"{100 * MIB}", f"{50 * MIB}", told)) == 60 * MIB


def test_in_a_container_of_the_older_kind_the_path_is_the_hosts(tmp_path: Path):
    assert legacy(tmp_path, GROUPS_OF_OLD, **{"": (f"{100 * MIB}", f"{50 * MIB}", "")}) == 50 * MIB


@pytest.mark.parametrize("most", [NO_LIMIT, "9223372036854771712\n", "", "rubbish", "-1"])
def test_without_a_limit_it_is_the_machines(tmp_path: Path, most: str):
    assert unified(tmp_path / "a", "0::/own\n", own=(most, f"{MIB}", "")) == 8192 * MIB
    assert legacy(tmp_path / "b", "4:memory:/own\n", own=(most, f"{MIB}", "")) == 8192 * MIB


def test_more_in_use_than_there_may_be_leaves_nothing(tmp_path: Path):
    assert unified(tmp_path, "0::/\n", **{"": (f"{MIB}", f"{2 * MIB}", "")}) == 0


@pytest.mark.parametrize("groups", ["", "rubbish\n", "0::/../../etc\n", "::\n", "0::\n"])
def test_whatever_stands_there_harms_nobody(tmp_path: Path, groups: str):
    assert unified(tmp_path, groups) == 8192 * MIB


def test_where_nothing_tells_there_is_much(tmp_path: Path):
    assert read_available_memory_bytes(str(tmp_path / "none"), str(tmp_path / "none")) >= 32 << 30
