"""fastmcp's forwarding proxy over one stdio server, itself over stdio: `fastmcp_proxy.py COMMAND...`."""

import sys
from importlib import import_module

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    servers = {"tools": {"command": command, "args": arguments}}
    proxy = import_module("fastmcp.server").create_proxy({"mcpServers": servers})
    proxy.run(show_banner=False, log_level="ERROR")
