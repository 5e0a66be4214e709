"""Export to ONNX: trace, verify with the runner that is exported too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from regard.bundle import Bundle
from regard.bundle.manifest import write_json
from regard.errors import RegardError
from regard.hub.conversion import Conversion, limit_note, save_tokenizers, tokenizer_files
from regard.hub.onnx_export import write_onnx
from regard.hub.onnx_model import OnnxModel, max_tokens, runner_options
from regard.hub.verification import verify_logits

ONNX_README = """\
# Model for ONNX Runtime

Exported by Regard in float32. On {texts} texts, logits differ from the original by at most \
{largest_difference:.1e}.

```sh
pip install numpy onnxruntime tokenizers
python THIS_FOLDER/run_onnx.py "a text" --beam 4
```

- `encoder.onnx`: ids (batch, source) and lengths (batch) → `memory.*`, and for recurrent models
  the first `past.*`.
- `decoder.onnx`: one step. tokens (batch), lengths, `memory.*` and `past.*` → logits of the next
  token and `present.*`, the past of the next step.
- `run_onnx.py`: greedy and beam search in numpy; `config.json`: its options and special tokens.

{limit}The two graphs run no code of their own.
"""


def convert_to_onnx(bundle: Bundle, folder: Path, texts: Sequence[str], int8: bool) -> Conversion:
    """Write both graphs and the runner, verified on onnxruntime."""
    if int8:
        raise RegardError("the ONNX export has no int8; leave out --int8")
    options = runner_options(bundle, tokenizer_files(bundle))
    write_onnx(bundle, folder, options)
    exported = OnnxModel(folder, bundle, threads=torch.get_num_threads())
    verified = verify_logits(bundle, exported, texts)
    verified.check()
    longest = max_tokens(bundle)
    facts: dict[str, Any] = {"precision": "float32", **asdict(verified), "longest": longest}
    facts["version"] = version("onnxruntime")
    write_json(folder / "config.json", {**options, "verification": asdict(verified)})
    save_tokenizers(bundle, folder)
    return Conversion(facts, ONNX_README.format(**facts, limit=limit_note(longest)))
