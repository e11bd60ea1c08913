"""`python -m grader`, which is what the command `grader` runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit.

    Ctrl-C during the imports exits silently with status 130, as it does later.
    """
    try:
        from grader.cli import main as command_line
        from grader.ending import leave
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        command_line()
    except SystemExit as ending:
        if "torch" not in sys.modules or not isinstance(ending.code, int | None):
            raise
        leave(ending.code or 0)


if __name__ == "__main__":
    main()
