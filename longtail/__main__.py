"""`python -m longtail`: the command."""

from longtail.cli import main

main()
