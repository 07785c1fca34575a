"""``python -m codemode.cli`` does what ``codemode`` does."""

import sys

from . import main

sys.exit(main())
