"""``codemode mcp pins``: what servers say of their tools now, against what they said when they were first used."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from codemode.cli.exits import DONE, FAILED, UsageError
from codemode.trace.visible_text import counted, visible

from .setup import configuration, warn
from .tty_prompt import controlling_terminal

if TYPE_CHECKING:
    from ..config.values import GatewayConfig
    from ..tool_history.pins import Pins, ServerPins


def run(options: argparse.Namespace) -> int:
    """Show all differences, or those of one server before it is taken as it is."""
    pins = _pins(configuration(options), options.user)
    found = pins.listing()
    return _list(found) if options.action is None else _approve(pins, found, options.name)


def _pins(config: GatewayConfig, user: str) -> Pins:
    from ..gateway.gateway import Gateway
    from ..tool_history.pins import Pins

    return Pins(Gateway(config).folder, user)


def _list(found: tuple[ServerPins, ...]) -> int:
    for one in found:
        print(difference(one))
    changed = sum(bool(one.differences) for one in found)
    print(f"{counted(changed, 'server')} of {len(found)} changed since first use")
    return DONE


def difference(one: ServerPins) -> str:
    """Return how the tools of a server differ, with nothing that hides: what a person is shown."""
    lines = [f"{visible(one.server)}: {counted(one.pinned, 'tool')} at first use"]
    for tool in one.differences:
        lines.append(f"  {tool.kind} {visible(tool.tool)}")
        lines += [f"    {visible(line)}" for line in tool.lines()]
    return "\n".join(lines if one.differences else [f"{lines[0]}, the same now"])


def _approve(pins: Pins, found: tuple[ServerPins, ...], name: str) -> int:
    from ..tool_history.pins import ChangedAgain

    shown = next((one for one in found if one.server == name), None)
    if shown is None:
        known = ", ".join(visible(one.server) for one in found) or "none"
        raise UsageError(f"nothing is remembered of {visible(name)}; of these there is: {known}")
    if not shown.differences:
        print(f"the tools of {visible(name)} are those of its first use")
        return DONE
    with controlling_terminal("`pins approve`") as terminal:
        terminal.say(difference(shown))
        if not terminal.agrees(f"\nTake the tools of {visible(name)} as they are now?"):
            terminal.say("Nothing was approved.")
            return FAILED
    try:
        count = pins.approve(name, shown.token)
    except ChangedAgain as error:
        warn(str(error))
        return FAILED
    print(f"approved {counted(count, 'tool')} of {visible(name)}")
    return DONE
