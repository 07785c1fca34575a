"""What twenty-one tasks cost in tokens, by direct calls of tools and by programs.

``python -m benchmarks.tokens`` prints the tables, with ``--write`` it puts them into docs/performance.md
too; `make bench-tokens` installs the tokenizer before. With ``--transcript NAME WAY`` it prints one conversation.

Twenty questions to a model that helps a small shop and has the 152 tools of ten public MCP servers that tests have too
(`catalog.py`). Behind those that are called stand real functions over data made from a seed (`world/`): pages of up to
100 records with the fields that the servers state or publish, a SQLite database, histories that are throttled. A task
(`tasks/`) is a question; the calls that a competent model makes, those at once that do not need each other, with the
tools' own filters wherever they help; and the programs that it writes. Each is played in five ways (`ways.py`): direct,
direct behind a search of tools, by `codeMode` with all tools declared, by `codeMode` as it comes, which lists so many
tools by name, and by CodeCall, whose searches must find what is called. Listings, search results, definitions, results
and failures are what the product gives; all ways know the same in the end, which a test checks, and write the same
answer.

One more question is about an API: its tools are operations of an OpenAPI document (`api_catalog.py`).

Two tasks are played once more with their program saved (`saved.py`): the second use of a program is one line.

Counted (`transcript.py`) is every text of each request: the tools as compact JSON, a system prompt, the question, what
the model has written and what came back, and four tokens for the marks of each. Tokens in are summed over all requests,
as without a cache; "each once" is what a cache of the conversation leaves, and "beside the tools" all but the listing,
which a cache across conversations may hold.

Scripted, not asked: no model has written a word of this, and nothing says how often a model writes such a program, or
gets a direct answer right that means to sort 84 issues in its head. Where a program's author cannot know what a tool
returns, the first program looks. One takes the wrong shape for granted, one does not reckon with throttling, and one
loops where CodeCall takes no loops: these fail, and are written again. There is no thinking on any side.
"""

from __future__ import annotations

import asyncio
import sys

from codemode import WorkerPool

from . import report, saved, tokenizer
from .api_catalog import ApiCatalog
from .tasks import TASKS
from .transcript import Transcript, counted
from .ways import Ways

Transcripts = dict[str, dict[str, Transcript]]


async def played() -> Transcripts:
    """Return every task's transcript in each way."""
    pool = WorkerPool()
    try:
        ways = {False: Ways(pool).by_name(), True: Ways(pool, catalog=ApiCatalog()).by_name()}
        return {
            task.name: {name: (await way(task)).transcript for name, way in ways[task.is_of_api].items()}
            for task in TASKS
        }
    finally:
        pool.close()


async def played_again() -> dict[str, Transcript]:
    """Return the conversations in which the program of a task was saved before."""
    pool = WorkerPool()
    try:
        return await saved.played_again(pool)
    finally:
        pool.close()


def again_text(transcripts: dict[str, Transcript]) -> str:
    """Say what a model writes for the second use of a program. Raises `ValueError` where that is too much."""
    tokens = tokenizer.tokens_of(text for one in transcripts.values() for text in one.texts())
    written = {task: counted(one, tokens).written for task, one in transcripts.items()}
    if max(written.values()) > saved.MAX_TOKENS_OUT:
        raise ValueError(f"the second use of a saved program takes {written}, more than {saved.MAX_TOKENS_OUT}")
    said = ", ".join(f"{number} ({task})" for task, number in written.items())
    return f"Tokens out once the program of a task is [saved](saved-programs.md), the answer included: {said}."


def results(transcripts: Transcripts) -> report.Results:
    """Count all transcripts, with one run of the tokenizer."""
    tokens = tokenizer.tokens_of(
        text for by_way in transcripts.values() for transcript in by_way.values() for text in transcript.texts()
    )
    return {
        task: {way: counted(transcript, tokens) for way, transcript in by_way.items()}
        for task, by_way in transcripts.items()
    }


def print_transcript(transcript: Transcript) -> None:
    """Print a conversation without the listing of tools; of long results the beginning."""
    print(f"tools: {len(transcript.listing):,} characters\n\n> {transcript.question}")
    for turn in transcript.turns:
        for at, text in enumerate(turn.written):
            print(f"\n< {text}")
            if at < len(turn.shown):
                shown = turn.shown[at]
                print(f"> {shown[:600]}" + (f"... ({len(shown):,} characters)" if len(shown) > 600 else ""))


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    transcripts = asyncio.run(played())
    if arguments[:1] == ["--transcript"]:
        task, way = arguments[1:]
        print_transcript(transcripts[task][way])
        return
    found = results(transcripts)
    made = f"gpt-tokenizer {tokenizer.version()}, o200k."
    again = again_text(asyncio.run(played_again()))
    said = f"{report.losses(found)} {report.behind_search(found)}"
    whole = f"Counted with {made} {again}\n\n{said}\n\n{report.whole_table(found)}"
    print(whole)
    if "--write" in arguments:
        report.put(report.PAGE, whole)


if __name__ == "__main__":
    main(sys.argv[1:])
