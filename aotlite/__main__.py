"""`python -m aotlite`: the command line where the `aotlite` script is not installed."""

import sys

from aotlite.cli import main

sys.exit(main())
