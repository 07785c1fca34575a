"""The engine itself, without a worker: what it says of modules, and what becomes of one that runs."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import Any

from codemode.guest import syntax_check
from codemode.workers.image import find_engine

WATCH = """(function () {
  let ending = "";
  const logged = [];
  globalThis.log = (value) => { logged.push(JSON.stringify(value) ?? typeof value); };
  const done = () => { ending = JSON.stringify({ value: globalThis.R, log: logged }); };
  const failed = (e) => {
    const error = e instanceof Error ? e.name : String(e);
    ending = JSON.stringify({ error, stack: String(e && e.stack), log: logged });
  };
  return (operation, value) => {
    if (operation === "watch") { value.then(done, failed); return ""; }
    if (operation === "take") {
      const { name, modules, flat } = JSON.parse(value);
      const spaces = Object.create(null);
      const made = (specifier) => Object.freeze(Object.assign(Object.create(null), modules[specifier]));
      const space = (specifier) => spaces[specifier] ??= made(specifier);
      const taken = Object.assign({}, flat.map(space));
      taken.load = async (specifier) => {
        if (!Object.hasOwn(modules, String(specifier))) throw new Error("no such module");
        return space(String(specifier));
      };
      taken.last = { value: undefined };
      Object.defineProperty(globalThis, name, { configurable: true, get() { delete globalThis[name]; return taken; } });
      return "";
    }
    return ending;
  };
})()"""


@cache
def engine() -> Any:
    """The engine's C module."""
    path = find_engine()[0]
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module


def checked(result: dict[str, Any]) -> dict[str, Any]:
    """What the analyser said of a module, with what the engine says of its syntax."""
    return syntax_check.check_syntax_of_analysed_module(engine().Context().module, result)


def authors_text(result: dict[str, Any]) -> str:
    """The text of a module without what was put in front of it and around its last statement, to keep its value."""
    module = result["facts"]["module"]
    body = result["js"].encode()[module["prefix"] :].decode()
    if "last" not in module:
        return body
    if "ends" in module and module["last"] == [0, 0]:
        named = re.search(r"\n;\$last\w*\.value=[^;]*;\Z", body)
        if named is not None:
            return body[: named.start()]
        return re.sub(r"\$last\w*\.value= *", lambda match: "export default".ljust(len(match[0])), body, count=1)
    at, length = (2 * units for units in module["last"])
    data = body.encode("utf-16-le")
    head, tail = data[:at].decode("utf-16-le"), data[at + length :].decode("utf-16-le")
    assert data[at : at + length].decode("utf-16-le").startswith("$last")
    end = tail.rindex(")")
    return f"{head}{tail[:end]}{tail[end + 1 :]}"


def evaluate(js: str, module: dict[str, Any], exports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What `globalThis.R` is in the end, ``{"value"}``, or what was thrown, ``{"error", "stack"}``; {} while it waits.

    Beside either stands ``"log"``: what the global `log` was called with, as JSON or as `typeof` says. ``module`` are
    the facts about ``js``; ``exports`` the modules that there are, by specifier.
    """
    context = engine().Context()
    kernel = context.eval(WATCH)
    if module["take"] is not None:
        flat = [one["from"] for one in module["imports"]]
        kernel("take", json.dumps({"name": module["take"], "modules": exports, "flat": flat}, sort_keys=True))
    kernel("watch", context.module(js))
    while context.execute_pending_job():
        pass
    ending = kernel("ending", "")
    return json.loads(ending) if ending else {}
