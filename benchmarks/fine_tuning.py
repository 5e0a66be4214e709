"""Fine-tuning of an imported model: a Marian-shaped folder, trained on Tatoeba, tuned on Multi30k.

    python benchmarks/fine_tuning.py DATA --out OUT [--parts tatoeba] [--device cuda]

The Hugging Face folder has random weights and a subword tokenizer of both data sets. It is
imported and trained on Tatoeba, and the result is fine-tuned on Multi30k twice: with the settings
that train the same folder on Multi30k only, and with the default settings of fine-tuning. All are
compared on the Multi30k test sets. The runs in OUT resume.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from harness import Check, report
from quality_scores import default_search
from quality_sets import READERS, Parts, write
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import MarianConfig, MarianMTModel

import regard

SETS = {"tatoeba": "tatoeba-en-de", "multi30k": "multi30k-en-de-raw"}
VOCABULARY = 8_000
SHAPE = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1_024,
    "decoder_ffn_dim": 1_024,
}
# A model of random weights is trained, not tuned: the usual learning rate and many epochs.
TRAINING: dict[str, Any] = {
    "learning_rate": 2.5e-3,
    "warmup": 0.1,
    "batch_tokens": 16_384,
    "label_smoothing": 0.1,
    "weight_decay": 0.1,
    "average_count": 20,
    "evaluations": 6,
}
ONLY = {
    "tatoeba": {"epochs": 14, "dropout": 0.1, "rdrop": 0.0},
    "multi30k": {"epochs": 60, "dropout": 0.3, "rdrop": 3.0},
}


def write_folder(sets: dict[str, Parts], folder: Path) -> None:
    """A Marian model of random weights with a tokenizer of the training texts."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY - 1, special_tokens=["</s>", "<unk>"], unk_token="<unk>"
    )
    texts = (side for parts in sets.values() for pair in parts.train for side in pair)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<pad>"])  # the last id, as in OPUS-MT
    size = tokenizer.get_vocab_size()
    pad = tokenizer.token_to_id("<pad>")
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=size,
        decoder_vocab_size=size,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        eos_token_id=0,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        forced_eos_token_id=None,
        **SHAPE,
    )
    MarianMTModel(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


def bleu(pipeline: regard.Pipeline, parts: Parts) -> float:
    """Mean BLEU of the test sets, with the default search."""
    return default_search(pipeline, parts.tests, "text", "bleu")


def main() -> None:
    """Train what is asked for, and compare if that is everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the two data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--parts", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    options = parser.parse_args()
    out, device = options.out, {"device": options.device}
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    sets = {name: READERS[data](options.data) for name, data in SETS.items()}
    if not (out / "marian/tokenizer.json").exists():
        write_folder(sets, out / "marian")
    for name, parts in sets.items():
        if not (out / name / "train.tsv").exists():
            write(parts, out / name)
    files = {
        name: {"pairs": out / name / "train.tsv", "held_out": out / name / "dev.tsv"}
        for name in SETS
    }
    imported, found = f"hf:{out / 'marian'}", {}
    for name in options.parts:
        run = out / f"{name}-only"
        settings = {**files[name], **TRAINING, **ONLY[name], **device}
        found[name] = regard.train(out=run, init=imported, **settings)
    if set(options.parts) != set(SETS):
        return
    multi30k, start = (
        sets["multi30k"],
        {"init": out / "tatoeba-only", **files["multi30k"], **device},
    )
    same = regard.train(out=out / "tuned", **start, **TRAINING, **ONLY["multi30k"])
    default = regard.train(out=out / "tuned-defaults", **start)
    values = {name: bleu(one, multi30k) for name, one in found.items()}
    best, value = max(values.values()), bleu(same, multi30k)
    own = bleu(found["tatoeba"], sets["tatoeba"])
    facts = {
        "Tatoeba test, trained on Tatoeba: BLEU": own,
        "Multi30k test, trained on Tatoeba: BLEU": values["tatoeba"],
        "Multi30k test, trained on Multi30k: BLEU": values["multi30k"],
        "Multi30k test, fine-tuned with the defaults: BLEU": bleu(default, multi30k),
    }
    checks = [Check(name, figure, None, None, True) for name, figure in facts.items()]
    name = "Multi30k test, fine-tuned with the settings of Multi30k: BLEU"
    checks.append(Check(name, value, 100.0, best, value > best))
    report("fine_tuning", checks)


if __name__ == "__main__":
    main()
