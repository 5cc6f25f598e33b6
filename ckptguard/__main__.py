"""`python -m ckptguard`: the command line, where no script is installed."""

from ckptguard.cli.main import main

main()
