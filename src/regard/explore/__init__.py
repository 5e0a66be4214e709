"""The explorer: a page in which a person types into their own model and every number shows where it comes from.

Nothing here loads torch before a model is asked for: the page is alive at once.
"""

from pathlib import Path

STATIC = Path(__file__).parent / "static"  # the page, built from explorer/
