"""Export to CTranslate2: convert, verify in float32, then quantise on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.bundle import Bundle
from regard.hub.conversion import (
    Conversion,
    compose_note,
    limit_note,
    save_tokenizers,
    tokenizer_files,
)
from regard.hub.ctranslate2_export import (
    adds_source_end,
    require_ctranslate2,
    tokens,
    write_ctranslate2,
)
from regard.hub.ctranslate2_model import CTranslate2Model
from regard.hub.verification import Verification, verify

CTRANSLATE2_README = """\
# Model for CTranslate2

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


def convert_to_ctranslate2(
    bundle: Bundle, folder: Path, texts: Sequence[str], int8: bool
) -> Conversion:
    """Write the model, verified in float32; with `int8`, count the outputs that change."""
    names = tokens(bundle.source), tokens(bundle.target)
    special: dict[str, Any] = {"template": bundle.template, "adds_end": adds_source_end(bundle)}
    longest = write_ctranslate2(bundle, folder)
    verified = verify(bundle, CTranslate2Model(folder, *names, **special), texts)
    verified.check()
    facts: dict[str, Any] = {"precision": "float32", **asdict(verified)}
    if int8:
        for path in folder.iterdir():
            path.unlink()
        write_ctranslate2(bundle, folder, int8=True)
        quantised = verify(bundle, CTranslate2Model(folder, *names, int8=True, **special), texts)
        facts |= _int8_facts(quantised)
    facts |= {"longest": longest, "version": str(require_ctranslate2().__version__)}
    changed = f" int8 changes {facts['int8_changed_outputs']} of the outputs." if int8 else ""
    save_tokenizers(bundle, folder)
    limit = limit_note(longest) + compose_note(bundle)
    words = {"changed": changed, "limit": limit, "source": tokenizer_files(bundle)[0]}
    return Conversion(facts, CTRANSLATE2_README.format(**{**facts, **words}))


def _int8_facts(quantised: Verification) -> dict[str, Any]:
    return {
        "precision": "int8",
        "int8_largest_difference": quantised.largest_difference,
        "int8_changed_outputs": quantised.changed_outputs + quantised.near_ties,
    }
