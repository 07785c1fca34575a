"""A host whose tool forks in the middle of a run, and whose forked child runs programs of its own."""

import multiprocessing

import codemode


def one() -> int:
    return 1


def grandchild(results: "multiprocessing.SimpleQueue[object]") -> None:
    results.put(codemode.run_code_mode_sync("return 40 + await tools.one()", [one]))


def fork() -> object:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=grandchild, args=(results,))
    process.start()
    process.join(60)
    return results.get()


program = "return [await tools.fork(), await tools.fork(), await tools.one()]"
assert codemode.run_code_mode_sync(program, [fork, one]) == [41, 41, 1]
print("ok")
