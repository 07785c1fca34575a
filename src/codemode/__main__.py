"""Run the command line with ``python -m codemode``."""

import sys

from .cli import main

sys.exit(main())
