"""`python -m makespan` is `makespan`."""

from makespan.cli import main

main()
