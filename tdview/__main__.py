"""This module knows that `python -m tdview` is the command line.

It does not know what the command line does.
"""

from __future__ import annotations

import sys

from tdview.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
