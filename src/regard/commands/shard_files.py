"""The file of one shard of `regard predict`: resumable, and with a record for `regard join`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.commands.output_files import ResumableFile, write_error
from regard.commands.shards import ShardRecord, file_sha256
from regard.disk import fsync_path


class ShardFile(ResumableFile):
    """The file of a shard. Its record stays beside it for `regard join`."""

    def __init__(
        self, record: ShardRecord, options: Mapping[str, Any], *, restart: bool = False
    ) -> None:
        self._record = record
        super().__init__(record.path, options, restart=restart)

    def finish(self) -> None:
        try:
            self._save_progress()
            digest = file_sha256(self._partial)
            self._save_progress(complete=True, sha256=digest, **self._record.facts)
            self._partial.replace(self._path)
            self._finished = True
            fsync_path(self._path.parent)
        except OSError as error:
            raise write_error(self._path, error) from None
