"""Opened: a bundle ready to answer, and the search that options describe."""

from __future__ import annotations

import gc
import hashlib
from pathlib import Path

from regard import search
from regard.bundle import MANIFEST, locate
from regard.commands.options import Draw, Form, Search
from regard.errors import RegardError, choose
from regard.pipeline import PRECISIONS, Pipeline, load

LONG = {name: name for name in ("warn", "refuse", "allow")}


def opened(folder: Path, *, device: str = "auto", long: str = "warn", precision: str = "float32") -> Pipeline:
    """The pipeline of a bundle, or one line on what is wrong with it."""
    choose(LONG, long, "way with long sources")
    choose(PRECISIONS, precision, "precision")
    choose({"auto": 0, "cpu": 0, "cuda": 0}, device.split(":")[0], "device")
    inner = folder / "bundle"
    if (inner / MANIFEST).is_file() and not (folder / MANIFEST).exists():
        raise RegardError(f"{str(folder)!r} is the folder of a run; its bundle is {str(inner)!r}")
    pipeline = load(folder, device=device, long=long, precision=precision)
    gc.freeze()  # all that is loaded stays: no need to look for garbage there while answering
    return pipeline


def fingerprint(folder: Path) -> str:
    """What identifies a bundle: the sha256 of its manifest, which holds those of all its files."""
    return hashlib.sha256((locate(folder) / MANIFEST).read_bytes()).hexdigest()


def chosen(pipeline: Pipeline, form: Form, asked: Search, draw: Draw) -> search.Search:
    """The search that was asked for."""
    if form.n_best < 1:
        raise RegardError(f"--n-best must be at least 1; got {form.n_best}")
    if asked.beam is not None and 1 <= asked.beam < form.n_best:
        raise RegardError(f"a beam of {asked.beam} cannot give {form.n_best} answers; widen --beam or lower --n-best")
    restrictions = {
        "min_length": asked.shortest,
        "max_length": asked.longest,
        "prefix": asked.prefix or "",
        "ban": asked.ban or (),
        "repetition_penalty": asked.repetition,
        "no_repeat_ngram": asked.no_repeat,
    }
    if not draw.sample:
        _only(draw, "needs --sample")
        beam = max(4, form.n_best) if asked.beam is None else asked.beam
        required = asked.require or ()
        return pipeline.search(
            beam=beam,
            best=form.n_best,
            length=asked.length,
            required=required,
            **restrictions,
        )
    for name in ("beam", "length", "require"):
        if getattr(asked, name) is not None:
            raise RegardError(f"--{name} is for search, not for --sample; leave one of them out")
    return search.Sampling(
        form.n_best,
        draw.temperature,
        draw.top_k,
        draw.top_p,
        draw.min_p,
        draw.seed,
        pipeline.restrictions(**restrictions),
    )


def _only(draw: Draw, why: str) -> None:
    """Raise when chance was tuned but not asked for."""
    plain = Draw()
    for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
        if getattr(draw, name) != getattr(plain, name):
            raise RegardError(f"--{name.replace('_', '-')} {why}")
