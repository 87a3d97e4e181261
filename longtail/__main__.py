"""`python -m longtail`: the command."""

from longtail import main

main()
