"""Groups of options in the help pages, in the order in which they are shown."""

from __future__ import annotations

from typing import Any

from cyclopts import Group, Parameter


def shown_default(value: Any) -> Any:
    """The default as help pages show it; None hides it: an option that is not given is off."""
    return None if value in (None, False, "", ()) else value


_HIDDEN = Parameter(show_default=False)  # the description names the default

FILES = Group.create_ordered("Input and output")
HELD_OUT = Group.create_ordered("Held-out pairs")
READING = Group.create_ordered("Reading", default_parameter=_HIDDEN)
MODEL = Group.create_ordered("Model and settings")
LENGTH = Group.create_ordered("Length of training")
RUN = Group.create_ordered("Run")
LANGUAGES = Group.create_ordered("Languages")
FORMAT = Group.create_ordered("Output format", default_parameter=_HIDDEN)
DECODING = Group.create_ordered("Decoding")
RULES = Group.create_ordered("Rules")
SERVER = Group.create_ordered("Server")
HARDWARE = Group.create_ordered("Engine and device")
