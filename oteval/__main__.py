"""The command ``oteval``, and ``python -m oteval``."""

from __future__ import annotations

import sys

__all__ = ["main"]

# The exit status that a shell reports for SIGINT.
_INTERRUPTED = 130


def main() -> None:
    """Run the command; Ctrl-C while its modules are imported ends it in one line, as later."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("oteval: interrupted; nothing was done\n")
        sys.exit(_INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
