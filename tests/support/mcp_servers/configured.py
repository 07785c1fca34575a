"""Configurations of the servers in this folder."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from codemode_gateway.config.model import GatewayConfig, ServerConfig

HERE = Path(__file__).parent


def quick(*modes: str, name: str = "quick", **settings: Any) -> ServerConfig:
    """Return the configuration of `quick_server.py` with these modes."""
    command = ("-I", "-S", str(HERE / "quick_server.py"), *modes)
    return ServerConfig(name, "stdio", command=sys.executable, args=command, **settings)


def odd(settings: dict[str, Any] | None = None, name: str = "odd", **more: Any) -> ServerConfig:
    """Return the configuration of `odd_server.py` over stdio with these settings of its own."""
    command = ("-I", "-S", str(HERE / "odd_server.py"), json.dumps(settings or {}))
    return ServerConfig(name, "stdio", command=sys.executable, args=command, **more)


def of(*servers: ServerConfig) -> GatewayConfig:
    """Return a configuration of these servers, about whose calls nobody is asked."""
    return GatewayConfig(servers=tuple(replace(one, approval="never") for one in servers))


def plain(name: str = "plain", **settings: Any) -> ServerConfig:
    """Return the configuration of `plain_server.py` over stdio."""
    return ServerConfig(name, "stdio", command=sys.executable, args=(str(HERE / "plain_server.py"),), **settings)


def scripted(file: Path, script: Mapping[str, Any], **settings: Any) -> ServerConfig:
    """Return the configuration of `scripted_server.py` over stdio, named as the file to which its script is written."""
    file.write_text(json.dumps(script), encoding="utf-8")
    command = ("-I", "-S", str(HERE / "scripted_server.py"), str(file))
    return ServerConfig(file.stem, "stdio", command=sys.executable, args=command, **settings)


@contextmanager
def scripted_over_http(file: Path, script: Mapping[str, Any], **settings: Any) -> Generator[ServerConfig]:
    """Serve `scripted_server.py` over HTTP; give its configuration."""
    file.write_text(json.dumps(script), encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(HERE / "scripted_server.py"), str(file), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
            yield ServerConfig(file.stem, "http", url=url, **settings)
        finally:
            process.kill()


@contextmanager
def served(
    transport: Literal["http", "sse"],
    port: int = 0,
    token: str | None = None,
    *,
    python: Sequence[str] = (sys.executable,),
) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """Serve `plain_server.py` over HTTP; give its URL and its process."""
    command = [*python, str(HERE / "plain_server.py"), transport, str(port), *([token] if token else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/{_PATHS[transport]}", process
        finally:
            process.kill()


_PATHS = {"http": "mcp", "sse": "sse"}
