"""A terminal's other end: what a program wrote there."""

import os


def shown(ours: int) -> str:
    """All that a terminal was given, once its writers have closed it.

    It hands its text on in parts.
    """
    text = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # on Linux this is the end
            part = b""
        if not part:
            os.close(ours)
            return text.decode()
        text += part
