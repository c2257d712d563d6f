"""A process that decodes parts of files for `decoder_pool`.

It reads requests on standard input until the input ends, and answers on standard output. Each
process imports all that it needs, so it is prevented from importing more: without NumPy, the
imports take a third of the CPU time.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from ..base.child_process import ignore_interrupts

__all__ = ["leave_out_numpy", "main"]


def leave_out_numpy() -> None:
    """Prevent Arrow from importing NumPy, which it only needs for NumPy arrays.

    NumPy takes longer to import than Arrow and the decoders together, and starts threads. Call
    this in a process that runs no other code, before Arrow is imported.
    """
    if "numpy" not in sys.modules:
        sys.modules["numpy"] = None  # type: ignore[assignment]


def main() -> None:
    """Decode the parts that standard input names, until it ends."""
    # The parent handles Ctrl-C, and then closes the streams.
    ignore_interrupts()
    leave_out_numpy()
    from .decoder_pool import answer

    with suppress(BrokenPipeError):
        answer(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
