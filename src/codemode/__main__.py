"""``python -m codemode`` does what ``codemode`` does."""

import sys

from .cli import main

sys.exit(main())
