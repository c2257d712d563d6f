"""``python -m oteval`` is the ``oteval`` command."""

from .cli import main

if __name__ == "__main__":
    main()
