"""Build the .mcpb bundle of the gateway: `python integrations/gateway/mcpb/build.py FOLDER`."""

import json
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("manifest.json", "server/main.py")
_SAME_TIME = (2026, 1, 1, 0, 0, 0)  # the same files give the same bundle


def build(folder: Path) -> Path:
    """Write the bundle into a folder and return its path."""
    version = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))["version"]
    bundle = folder / f"codemode-gateway-{version}.mcpb"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            archive.writestr(zipfile.ZipInfo(name, _SAME_TIME), (HERE / name).read_bytes())
    return bundle


if __name__ == "__main__":
    build(Path(sys.argv[1]))
