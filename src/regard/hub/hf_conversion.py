"""Export to Hugging Face: write the folder, and compare it with the original in `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.bundle import Bundle
from regard.errors import RegardError
from regard.hub.conversion import Conversion, compose_note, has_shared_tokenizer, limit_note
from regard.hub.hf_export import write_hf
from regard.hub.hf_model import HFModel
from regard.hub.verification import ExportError, verify_logits

HF_README = """\
# Model for transformers ({layout})

Exported by Regard in float32. {check}

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("THIS_FOLDER")
source = AutoTokenizer.from_pretrained("THIS_FOLDER")
{target}
found = model.generate(**source("a text", return_tensors="pt"))
print(target.decode(found[0], skip_special_tokens=True))
```

{limit}Loading the folder runs no code from it.
"""
SHARED_TARGET = "target = source"
OWN_TARGET = 'target = AutoTokenizer.from_pretrained("THIS_FOLDER", subfolder="target")'
UNCHECKED = "no check was made: transformers is not installed"


def convert_to_hf(bundle: Bundle, folder: Path, texts: Sequence[str], int8: bool) -> Conversion:
    """Write the folder, verified where `transformers` is installed."""
    if int8:
        raise RegardError("the Hugging Face export has no int8; leave out --int8")
    layout, longest = write_hf(bundle, folder)
    facts: dict[str, Any] = {"precision": "float32", "layout": layout, "longest": longest}
    if find_spec("transformers") is None:
        facts["check"], sentence = UNCHECKED, f"{UNCHECKED.capitalize()}."
    else:
        loaded = HFModel(folder, bundle)
        verified = verify_logits(bundle, loaded, texts)
        verified.check()
        check_tokenizers(bundle, loaded, texts)
        facts |= {**asdict(verified), "version": version("transformers")}
        sentence = (
            f"On {verified.texts} texts, logits differ from the original by at most "
            f"{verified.largest_difference:.1e}, and no output differs."
        )
    target = SHARED_TARGET if has_shared_tokenizer(bundle) else OWN_TARGET
    limit = limit_note(longest) + compose_note(bundle)
    words = {"layout": layout, "check": sentence, "target": target, "limit": limit}
    return Conversion(facts, HF_README.format(**words))


def check_tokenizers(bundle: Bundle, loaded: HFModel, texts: Sequence[str]) -> None:
    """Raise unless the exported tokenizers give the same ids and texts."""
    for text in texts:
        ids = bundle.source.encode(text.strip())
        if loaded.encode(text.strip()) != bundle.template.source(ids):
            raise ExportError(
                f"the exported tokenizer encodes {text!r:.60} differently; nothing was written: "
                "keep using Regard for this model"
            )
