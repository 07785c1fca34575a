"""Found by a long run of `analysis`: a deadline that passes between the parse and the walk over its tree."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: the loop is in the parser's binding, where nothing but an end of the process gets through.
LATE_WALK = """
import faulthandler, sysconfig
from codemode.guest.analysis import analyse, parse

is_parsed, real_parse = [], parse.parse
def parse_and_be_late(*arguments, **options):
    tree = real_parse(*arguments, **options)
    is_parsed.append(True)
    return tree

parse.parse = parse_and_be_late
paths = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
analyser = analyse.load_analyser(paths, lambda: 1e9 if is_parsed else 0.0)
faulthandler.dump_traceback_later(60, exit=True)
facts = analyser("return await tools.search({ limit: 1 })", 50)["facts"]
print([call["name"] for call in facts["calls"]])
"""


def test_a_deadline_that_passes_after_the_parse_does_no_harm() -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", LATE_WALK], capture_output=True, text=True, timeout=120, check=False
    )
    assert outcome.stdout == "['search']\n", outcome.stderr
