"""Coverage-guided fuzzing of all targets, or some: ``python -m tests.fuzz.long_run [seconds] [target ...]``.

Needs atheris, which `make fuzz` installs apart from everything else. An input that ends wrongly is written to
``findings/<target>/``, where the tests find it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

FINDINGS = Path(__file__).parent / "findings"
_SECONDS = 60
_NAMES = ("frames", "worker", "continuation", "interrupt", "facts", "hello", "analysis")


def fuzz_one(name: str, folder: Path, seconds: int) -> int:
    """Fuzz in a process of its own: a fuzzer ends its process. Returns the exit status."""
    arguments = [
        f"-max_total_time={seconds}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    artifacts = FINDINGS / name
    artifacts.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.long_run",
        "--only",
        name,
        str(folder),
        f"-artifact_prefix={artifacts}/",
    ]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    lines = ended.stderr.splitlines()
    interesting = [line for line in lines if "number_of_executed_units" in line or "cov:" in line][-2:]
    print(
        f"{name:14} {'FOUND SOMETHING' if ended.returncode else 'nothing found'}  {_figures(interesting)}", flush=True
    )
    if ended.returncode:
        print("\n".join(lines[-40:]))
    with contextlib.suppress(OSError):  # only folders without a finding can be removed
        artifacts.rmdir()
        FINDINGS.rmdir()
    return ended.returncode


def _figures(lines: list[str]) -> str:
    words = " ".join(lines).split()
    found = {word.rstrip(":"): words[number + 1] for number, word in enumerate(words[:-1]) if word.endswith(":")}
    executed, covered = found.get("stat::number_of_executed_units", "?"), found.get("cov", "?")
    return f"{executed} inputs, {covered} edges"


def become_fuzzer(name: str, folder: str, arguments: list[str]) -> None:
    """Fuzz in this process, with the package instrumented. Does not return."""
    import atheris  # pyright: ignore[reportMissingImports] -- on demand only

    with atheris.instrument_imports(include=["codemode"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus, words = Path(folder) / name, Path(folder) / f"{name}.dict"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    words.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    atheris.Setup([sys.argv[0], *arguments, f"-dict={words}", str(corpus)], target.run)
    atheris.Fuzz()


def main() -> int:
    """Fuzz every named target, or all."""
    if sys.argv[1:2] == ["--only"]:
        become_fuzzer(sys.argv[2], sys.argv[3], sys.argv[4:])
        return 0
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else _SECONDS
    with tempfile.TemporaryDirectory() as folder:
        return max(fuzz_one(name, Path(folder), seconds) for name in sys.argv[2:] or _NAMES)


if __name__ == "__main__":
    sys.exit(main())
