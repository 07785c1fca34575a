"""Start the gateway from the bundle, for clients that run its entry point themselves."""

import sys

from codemode_gateway.cli.commands import start

sys.exit(start())
