"""Tools of the program that is replayed, before its first model call.

The functions of a program do not exist when its replay begins, and nothing reports that they do. So
the first calls that the program itself makes are watched, with Python's trace function: before
each of them, the functions of the recorded tools are taken over that exist by then. A call of such
a function itself is stopped, since no model has asked for it.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType

from ..record import is_agent_file
from .player import Player

__all__ = ["watch_main_program"]

# Each look for functions takes a tenth of a second.
_MOST_LOOKS = 30


def watch_main_program(player: Player) -> None:
    """Take over the functions of tools before the program of this process calls any function.

    Nothing is watched if a debugger or a measurement of coverage traces the program.

    Args:
        player: The player of the replay.
    """
    looks = 0

    def called(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal looks
        caller, code = frame.f_back, frame.f_code
        if event != "call" or caller is None or caller.f_code.co_name != "<module>":
            return
        if caller.f_globals.get("__name__") != "__main__" or not is_agent_file(code.co_filename):
            return
        # The body of a class is not a call of the program.
        if code.co_name == "<module>" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        looks += 1
        player.take_over_all()
        if looks >= _MOST_LOOKS or not player.has_tools_to_take_over:
            sys.settrace(None)
        player.require_not_early(code)

    if player.has_tools_to_take_over and sys.gettrace() is None:
        sys.settrace(called)
