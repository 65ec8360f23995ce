"""``python -m lash`` is the ``lash`` command."""

import sys

from lash.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
