"""NativeOptions: decoding options as the structure that the native engine takes."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.native.library import OptionsStruct
from regard.search.token_options import TokenOptions


@dataclass(frozen=True)
class NativeOptions(TokenOptions):
    """Decoding options of the native engine; `gnmt` selects that kind of length penalty."""

    gnmt: bool = False

    def struct(self) -> OptionsStruct:
        """The C structure of these options."""
        opening = self.required if self.required_opening is None else self.required_opening
        template = self.template
        single = [one for one in (template.banned, self.prefix) if one]
        sequences = [template.start, *single, *self.ban, *self.required, *opening]
        ids = [token for sequence in sequences for token in sequence]
        ends = np.cumsum([len(sequence) for sequence in sequences]).tolist()
        return OptionsStruct(
            beam=self.beam,
            n_best=self.n_best,
            gnmt=self.gnmt,
            min_length=self.min_length,
            max_length=-1 if self.max_length is None else self.max_length,
            no_repeat_ngram=self.no_repeat_ngram,
            sample=self.sample,
            top_k=self.top_k or 0,
            end=template.end,
            length_alpha=self.length_penalty,
            repetition_penalty=self.repetition_penalty,
            temperature=self.temperature,
            top_p=self.top_p,
            min_p=self.min_p,
            ids=(ctypes.c_int32 * len(ids))(*ids),
            ends=(ctypes.c_int32 * len(ends))(*map(int, ends)),
            never_count=1 if template.banned else 0,
            prefix_count=1 if self.prefix else 0,
            ban_count=len(self.ban),
            required_count=len(self.required),
        )

    def sample_seeds(self, ids: Sequence[int]) -> list[int]:
        """A seed for each sample of a source (with its special tokens), as in regard.search.

        The digest of ids and seed starts a Mersenne Twister, whose 64-bit draws modulo 2⁶² are
        the seeds.
        """
        own = int(self.seed).to_bytes(16, "little", signed=True)
        digest = hashlib.sha256(np.array(ids, np.int64).tobytes() + own).digest()
        start = (int.from_bytes(digest[:8], "little") >> 1) & 0xFFFFFFFF
        draws = np.random.RandomState(start).randint(0, 1 << 32, 2 * self.n_best, np.uint64)
        pairs = draws.reshape(-1, 2).tolist()
        return [((high << 32) | low) % (1 << 62) for high, low in pairs]
