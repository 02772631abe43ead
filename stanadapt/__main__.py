"""`python -m stanadapt` is the command `stanadapt`."""

from .cli import main

if __name__ == "__main__":
    main()
