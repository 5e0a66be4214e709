"""`python -m regard` is the command `regard`."""

from regard.cli import main

main()
