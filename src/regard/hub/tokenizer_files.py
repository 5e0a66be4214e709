"""TokenizerFiles: the tokenizer files of a Hugging Face folder, checked as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regard.hub.checkpoint_folder import CheckpointFolder, HuggingFaceError
from regard.hub.sentencepiece_model import SentencePieceError, SentencePieceModel

NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
ROLES = tuple(role for role in NAMES if role != "mask_token")
ADD_FILE = (
    "add its tokenizer.json, which AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) "
    "writes"
)


@dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer files of a folder; `sizes` are the numbers of ids of the model's sides."""

    folder: CheckpointFolder
    sizes: tuple[int, int]

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """tokenizer_config.json, completed by special_tokens_map.json."""
        special = self.folder.read_json("special_tokens_map.json") or {}
        return {**special, **(self.folder.read_json("tokenizer_config.json") or {})}

    @property
    def kind(self) -> str:
        """The name of the tokenizer's class, without Fast."""
        return str(self.config.get("tokenizer_class")).removesuffix("Fast")

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return self.folder.find(name) is not None

    def name(self, role: str) -> str:
        """The name of a special token such as `unk_token`."""
        value = self.config.get(role)
        value = value.get("content") if isinstance(value, dict) else value
        return value if isinstance(value, str) and value else NAMES[role]

    def listed(self) -> list[str]:
        """The names of additional special tokens, in order."""
        for key in ("extra_special_tokens", "additional_special_tokens"):
            values = self.config.get(key)
            if isinstance(values, list) and values:
                names = [one.get("content") if isinstance(one, dict) else one for one in values]
                return [name for name in names if isinstance(name, str)]
        return []

    def count(self, name: str, default: int) -> int:
        """A small number of tokens in the configuration."""
        value, most = self.config.get(name, default), 1 << 12
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise self.folder.error(f"{name} must be an integer up to {most:,}; got {value!r:.20}")
        return value

    def special(self, ids: Mapping[str, int], others: Iterable[str] = ()) -> dict[str, int]:
        """The special tokens and their ids."""
        names = [*map(self.name, ROLES), *others]
        return {name: ids[name] for name in names if name in ids}

    def read_ids(self, name: str) -> dict[str, int]:
        """The ids of a vocab.json; raises unless each id occurs once."""
        values = self.folder.read_json(name)
        if values is None:
            raise self.folder.error(f"it has no {name!r}", "download all files of the model")
        ids = list(values.values())
        plain = all(isinstance(id, int) and not isinstance(id, bool) for id in ids)
        if not plain or sorted(ids) != list(range(len(ids))):
            raise self.folder.error(f"{name!r} does not number its tokens from 0 on")
        return values

    def read_merges(self) -> list[tuple[str, str]]:
        """The pairs of merges.txt; a first line with the version is skipped."""
        lines = (self.folder.read_text("merges.txt") or "").split("\n")
        words = [line.split() for line in lines if line and not line.startswith("#version")]
        if any(len(pair) < 2 for pair in words):
            raise self.folder.error("'merges.txt' has a line without two parts")
        return list(dict.fromkeys((pair[0], pair[1]) for pair in words))

    def read_pieces(self, name: str) -> SentencePieceModel:
        """A SentencePiece model."""
        content = self.folder.read_bytes(name)
        if content is None:
            raise self.folder.error(f"it has no {name!r}", "download all files of the model")
        try:
            return SentencePieceModel.parse(content)
        except SentencePieceError as error:
            raise self.folder.error(f"{name!r}: {error}") from None

    def unknown(self, names: Iterable[str], file: str) -> str:
        """The name of the unknown token; raises unless a file has it."""
        name = self.name("unk_token")
        if name not in names:
            raise self.folder.error(f"{file!r} has no token {name!r}")
        return name

    def missing(self) -> HuggingFaceError:
        """The error for a folder without the files of its family."""
        return self.folder.error("it has no tokenizer files of its family", ADD_FILE)
