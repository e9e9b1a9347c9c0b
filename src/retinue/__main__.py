"""`python -m retinue` is the `retinue` command."""

import sys

from retinue.cli.main import entry

if __name__ == "__main__":
    sys.exit(entry())
