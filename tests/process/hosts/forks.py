"""A host that forks (or spawns) children after using the pool; all of them use it. Argument: start method."""

import multiprocessing
import sys

import codemode

JOIN_SECONDS = 60


def triple(number: int) -> int:
    return number * 3


def use(number: int) -> None:
    for _ in range(2):
        result = codemode.run_code_mode_sync(f"return await tools.triple({{number: {number}}})", [triple])
        assert result == number * 3, result


def main(method: str) -> None:
    use(1)
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=use, args=(number,)) for number in (2, 3)]
    for process in processes:
        process.start()
    use(5)
    for process in processes:
        process.join(JOIN_SECONDS)
        assert process.exitcode == 0, process.exitcode
    use(6)
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
