"""The files of the page, gzipped for clients that accept it.

A file is compressed once and kept until it changes. Each form has its own ETag and both name the
header that decides between them, so that no cache mixes them up (RFC 9110, §8.8.3.3 and §12.5.5).
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles

from regard.web.access import Scope

LEVEL = 9
TYPES = ("text/", "application/javascript", "application/json", "image/svg+xml")
VARY = "Accept-Encoding"


class CompressedFiles(StaticFiles):
    """A folder of files; those that are text are sent gzipped where the client accepts it."""

    def __init__(self, *, directory: Path, html: bool = False) -> None:
        super().__init__(directory=directory, html=html)
        self._compressed: dict[str, tuple[tuple[int, int], bytes]] = {}

    def file_response(
        self,
        full_path: os.PathLike[str] | str,
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The file as it is or gzipped; without its content if the client has this form."""
        request = Headers(scope=scope)
        made: Response = FileResponse(full_path, status_code, stat_result=stat_result)
        if made.headers["content-type"].startswith(TYPES):
            made.headers["vary"] = VARY
            # A range counts bytes of the file itself.
            if "range" not in request and accepts_gzip(request.get("accept-encoding", "")):
                made = self._gzipped(str(full_path), stat_result, made)
        if self.is_not_modified(made.headers, request):
            return NotModifiedResponse(made.headers)
        return made

    def _gzipped(self, path: str, stat: os.stat_result, plain: Response) -> Response:
        version = (stat.st_mtime_ns, stat.st_size)
        found = self._compressed.get(path)
        if found is None or found[0] != version:
            found = version, gzip.compress(Path(path).read_bytes(), LEVEL, mtime=0)
            self._compressed[path] = found
        headers = {name: plain.headers[name] for name in ("content-type", "last-modified", "vary")}
        tag = plain.headers["etag"].removesuffix('"') + '-gzip"'
        headers |= {"content-encoding": "gzip", "etag": tag}
        return Response(found[1], plain.status_code, headers)


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip: by name, or by `*`, with a weight above 0."""
    weights = {}
    for part in header.lower().split(","):
        name, _, parameter = part.partition(";")
        weight = parameter.replace(" ", "").removeprefix("q=") if parameter else "1"
        weights[name.strip()] = weight
    chosen = weights.get("gzip", weights.get("x-gzip", weights.get("*", "0")))
    try:
        return float(chosen) > 0
    except ValueError:  # not a weight
        return False
