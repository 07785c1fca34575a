"""The proxy of `tests.soak.replicas`: nginx as `deploy/` has it, but for whom it asks: the next replica."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

MISSING = "there is no nginx on this machine: install Debian's package nginx-light"
AWAY = (502, 503, 504)
_DEPLOYED = Path(__file__).parents[2] / "deploy" / "nginx.conf"
_PLACES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_HEAD = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log error;
events {{ worker_connections 1024; }}
http {{
    log_format told escape=json '["$server_name", "$request_method", $status, $request_time, "$request_completion"]';
    access_log {folder}/access.log told;
{places}
"""
_ROLE = """
    upstream {role} {{
{servers}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name {role};
        client_max_body_size 4m;
{location}
    }}
"""


def found_nginx() -> str | None:
    """Return where nginx is; users other than root do not have its folder in their ``PATH``."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class Proxy:
    """Runs while its ``with`` block does. ``roles`` maps a name to the port of the proxy and those of its replicas."""

    def __init__(self, folder: Path, roles: Mapping[str, tuple[int, Sequence[int]]]) -> None:
        nginx = found_nginx()
        assert nginx is not None, MISSING
        folder.mkdir()
        self._folder = folder
        config = folder / "nginx.conf"
        config.write_text(_config(folder, roles))
        self._command = [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.poll() is None, f"nginx has ended: {(self._folder / 'error.log').read_text()[-2000:]}"
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def told(self) -> dict[str, Told]:
        """Return what came of all requests so far, by role and method."""
        found: dict[str, Told] = {}
        for line in (self._folder / "access.log").read_text().splitlines():
            role, method, status, seconds, completion = json.loads(line)
            one = found.setdefault(f"{role} {method}", Told(Counter(), []))
            one.take(status, float(seconds), is_whole=completion == "OK")
        return found


@dataclass(frozen=True)
class Told:
    """What came of requests. ``seconds`` are those of the answered ones, of which the whole answer was sent."""

    counts: Counter[str]
    seconds: list[float]

    def take(self, status: int, seconds: float, *, is_whole: bool) -> None:
        """Count one more."""
        self.counts["requests"] += 1
        if status >= 500:
            self.counts[str(status)] += 1
        elif status == 499:
            self.counts["client gone"] += 1
        elif not is_whole:
            self.counts["cut off"] += 1
        else:
            self.seconds.append(seconds)

    def quantile(self, part: float) -> float:
        """Return the time, in seconds, within which this part of them was answered."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(part * len(self.seconds)))] if self.seconds else 0.0


def _config(folder: Path, roles: Mapping[str, Any]) -> str:
    """Round robin, which is nginx's own way, instead of a user's own gateway; the rest is what `deploy/` has."""
    deployed = _DEPLOYED.read_text()
    (location,) = re.findall(r"^    location / \{.*?^    \}", deployed, re.DOTALL | re.MULTILINE)
    (server,) = set(re.findall(r"server gateway-\d:8765 (.*;)", deployed))
    places = "\n".join(f"    {one}_temp_path {folder}/{one};" for one in _PLACES)
    text = _HEAD.format(folder=folder, places=places)
    for role, (port, ports) in roles.items():
        servers = "\n".join(f"        server 127.0.0.1:{one} {server}" for one in ports)
        own = location.replace("http://gateways", f"http://{role}")
        text += _ROLE.format(role=role, servers=servers, port=port, location=own)
    return text + "}\n"
