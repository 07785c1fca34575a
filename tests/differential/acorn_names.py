"""The names, loops and uses of modules that acorn finds in programs, from one Node process."""

from pathlib import Path

from node_answers import NodeAnswers

SCRIPT = Path(__file__).with_suffix(".js")


class Acorn(NodeAnswers):
    """Answers programs: ``{"names": [[name, place]], "loops": [[kind, place]], "modules": ...}``.

    None for what is no program. Places count UTF-16 units from 0.
    """

    def __init__(self) -> None:
        super().__init__(SCRIPT, "--expose-internals")
