"""The web explorer: run a model on a text and inspect every intermediate number.

No module here loads torch at import: the page is available at once.
"""

from pathlib import Path

STATIC = Path(__file__).parent / "static"  # the page, built from explorer/
