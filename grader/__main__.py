"""`python -m grader`, which is what the command `grader` runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit.

    Ctrl-C ends it silently with exit status 130, also during imports.
    """
    try:
        from grader.cli import main as command_line
    except KeyboardInterrupt:
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
