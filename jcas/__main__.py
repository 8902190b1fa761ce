"""``python -m jcas``: the same as the ``jcas`` command."""

from jcas.cli import main

if __name__ == "__main__":
    main()
