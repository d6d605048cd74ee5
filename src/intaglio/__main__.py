"""`python -m intaglio` is the command line."""

from intaglio.cli.main import main

main()
