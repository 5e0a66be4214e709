"""Export a bundle to another runtime: converted, verified, and only then written.

>>> regard.export("runs/words", "ctranslate2")     # writes runs/words/bundle-ctranslate2
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike
from regard.bundle import Bundle
from regard.bundle.manifest import CARD, README, SHARED, SOURCE, TARGET, write_json
from regard.errors import RegardError, choose
from regard.hub import CTranslate2Model, Verification, verify, write_ctranslate2
from regard.hub.ctranslate2_export import adds_source_end, require_ctranslate2, tokens
from regard.loading import bundle_folders
from regard.pretrained import MODELS
from regard.reports.collect import read_outputs
from regard.training.pairs import as_corpus

CTRANSLATE2_README = """\
# {name} for CTranslate2

Exported by Regard in {precision}. On {texts} texts, log-probabilities differ from the original by \
at most {largest_difference:.1e}.{changed}

```python
import ctranslate2
from tokenizers import Tokenizer

translator = ctranslate2.Translator("THIS_FOLDER", compute_type="{precision}")
source = Tokenizer.from_file("THIS_FOLDER/{source}")
tokens = source.encode("a text", add_special_tokens=False).tokens
found = translator.translate_batch([tokens], beam_size=4, min_decoding_length=0)
print(found[0].hypotheses[0])
```

{limit}Loading the folder runs no code from it.
"""


@dataclass(frozen=True)
class Conversion:
    """A converted model in a temporary folder: how it was verified, and its README.md."""

    facts: dict[str, Any]
    readme: str


Converter = Callable[[Bundle, Path, Sequence[str], bool], Conversion]


def export(
    folder: PathLike,
    to: str,
    out: PathLike | None = None,
    *,
    int8: bool = False,
    held_out: Any = None,
    source: str | None = None,
    target: str | None = None,
) -> Path:
    """Export a bundle to another runtime (`ctranslate2`); returns the folder that was written.

    The exported model must give the same outputs as the original and the same log-probabilities
    within 1e-4 on up to 200 texts: the sources of `held_out` (pairs as in `regard.train`), those of
    the held-out set of the bundle's run, or the samples on its card and random ones. Otherwise
    nothing is written. With `int8`, the number of outputs that quantisation changes is recorded.
    """
    convert = choose(CONVERTERS, to, "export format")
    folders = bundle_folders(folder)
    if len(folders) != 1:
        raise RegardError(f"export takes one bundle, not an ensemble of {len(folders)}")
    home = folders[0]
    place = Path(out) if out is not None else _default_folder(home, to)
    if place.exists():
        raise RegardError(f"{str(place)!r} exists; remove it, or choose another --out")
    made = bundle.load(home)
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed export
    try:
        partial.mkdir(parents=True)
        texts = _texts(made, home, held_out, source=source, target=target)
        found = convert(made, partial, texts, int8)
        write_json(partial / CARD, {**made.card, "export": {"format": to, **found.facts}})
        (partial / README).write_text(found.readme, encoding="utf-8")
        _save_tokenizers(made, partial)
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def _convert_to_ctranslate2(
    made: Bundle, folder: Path, texts: Sequence[str], int8: bool
) -> Conversion:
    names = tokens(made.source), tokens(made.target)
    special: dict[str, Any] = {"template": made.template, "adds_end": adds_source_end(made)}
    longest = write_ctranslate2(made, folder)
    verified = verify(made, CTranslate2Model(folder, *names, **special), texts)
    verified.check()
    facts: dict[str, Any] = {"precision": "float32", **asdict(verified)}
    if int8:
        for path in folder.iterdir():
            path.unlink()
        write_ctranslate2(made, folder, int8=True)
        quantised = verify(made, CTranslate2Model(folder, *names, int8=True, **special), texts)
        facts |= _int8_facts(quantised)
    facts |= {"longest": longest, "version": str(require_ctranslate2().__version__)}
    changed = f" int8 changes {facts['int8_changed_outputs']} of the outputs." if int8 else ""
    limit = "" if longest is None else f"A side may have at most {longest:,} tokens. "
    source = SHARED if _shared(made) else SOURCE
    text = CTRANSLATE2_README.format(
        **{**facts, "name": "Model", "changed": changed, "limit": limit, "source": source}
    )
    return Conversion(facts, text)


def _int8_facts(quantised: Verification) -> dict[str, Any]:
    return {
        "precision": "int8",
        "int8_largest_difference": quantised.largest_difference,
        "int8_changed_outputs": quantised.changed_outputs + quantised.near_ties,
    }


CONVERTERS: Mapping[str, Converter] = {"ctranslate2": _convert_to_ctranslate2}


def _texts(made: Bundle, home: Path, held_out: Any, **columns: Any) -> list[str]:
    """The sources that verify an export."""
    if held_out is not None:
        return list(dict.fromkeys(pair.source for pair in as_corpus(held_out, **columns)))
    rows = read_outputs(home.parent / "held_out.jsonl") if home.name.startswith("bundle") else []
    return [row.source for row in rows] or [str(one[0]) for one in made.card.get("samples", [])]


def _default_folder(home: Path, to: str) -> Path:
    name = f"{home.name.removesuffix('.zip')}-{to}"
    return Path(name) if home.parent == MODELS else home.with_name(name)


def _shared(made: Bundle) -> bool:
    return made.source.fingerprint == made.target.fingerprint


def _save_tokenizers(made: Bundle, folder: Path) -> None:
    made.source.save(folder / (SHARED if _shared(made) else SOURCE))
    if not _shared(made):
        made.target.save(folder / TARGET)


def describe_export(folder: Path) -> str:
    """What the card of an export says, in lines."""
    facts = json.loads((folder / CARD).read_text(encoding="utf-8"))["export"]
    lines = [
        f"{folder}: {facts['format']}, {facts['precision']}",
        f"  {facts['texts']} texts: log-probabilities differ by at most "
        f"{facts['largest_difference']:.1e}, no output differs"
        + (f" except {facts['near_ties']} near-ties" if facts["near_ties"] else ""),
    ]
    if "int8_changed_outputs" in facts:
        lines.append(f"  int8 changes {facts['int8_changed_outputs']} of these outputs")
    if facts.get("longest"):
        lines.append(f"  at most {facts['longest']:,} tokens on a side")
    return "\n".join(lines)
