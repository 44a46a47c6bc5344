"""`python -m foredraft`: the command line."""

from foredraft.cli.main import main

main()
