"""The command line: ``jcas COMMAND``, also ``python -m jcas COMMAND``.

``dataset`` holds synth and corrupt, ``training`` train, ``inference`` evaluate and predict, ``repair`` audit and
review, ``comparison`` benchmark and report, ``methods`` and ``demo`` the commands of these names. ``options`` and
``output`` are what they share; ``entry`` makes the app of them.

A mistake of the user is one line on stderr and exit code 2; Ctrl-C is exit code 130.
"""

from jcas.cli.entry import app, main

__all__ = ["app", "main"]
