"""`python -m grader.cli`: the command where no script is installed."""

from grader.cli import main

main()
