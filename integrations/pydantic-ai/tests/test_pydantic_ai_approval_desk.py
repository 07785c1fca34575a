"""The example of a support agent: asked in one process, decided in another, gone on with in two more, once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from warm_python import WarmPython

DESK = Path(__file__).parents[1] / "examples" / "approval_desk.py"
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "USER"} | {
    "CODEMODE_SIGNING_KEY": "9c1f0a7e93d24b68a1e7c05d9b3f8462"
}


def test_an_edited_refund_is_made_once_whoever_goes_on(pydantic_ai_python: WarmPython, tmp_path: Path) -> None:
    def said(what: str, answer: str = "") -> str:
        given = (str(DESK), what, "sqlite:///approvals.db")
        done = pydantic_ai_python.run(*given, said=answer, cwd=tmp_path, env=ENVIRONMENT)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    asked = said("ask")
    assert "(looking up A-17)" in asked
    assert "It waits for a decision: record " in asked
    decided = said("decide", "9000\n")
    assert 'The agent wants: refund({"' in decided
    assert "refunding" not in asked + decided
    with ThreadPoolExecutor(2) as both:
        printed = "".join(both.map(said, ["resume"] * 2))
    assert printed.count("(refunding A-17: 90.00)") == 1
    assert printed.count("(mail to ann@example.org: We have refunded 90.00 for A-17.)") == 1
    assert "looking up" not in printed
    assert "Done: refunded 90.00 for A-17." in printed
