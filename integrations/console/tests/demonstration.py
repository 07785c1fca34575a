"""The example `demo_console.py` as a module, for tests that want pages with something on them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

DEMO = Path(__file__).parents[1] / "examples" / "demo_console.py"


def demonstration() -> ModuleType:
    spec = spec_from_file_location("demo_console", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, module_from_spec(spec))  # annotations are read where a module is found
    spec.loader.exec_module(module)
    return module
