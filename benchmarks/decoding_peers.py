"""The systems of benchmarks/decoding.py: Regard, HF `generate`, nn.Transformer and CTranslate2.
 Regard, HF Marian and CTranslate2 have the same weights. A trained model generates its end token
(`forced` is None). A model with random weights would not: its outputs have `forced` tokens and one
more step for the end. Regard and HF must generate it there and only there; CTranslate2 does not
support this and generates one more token instead. It also masks the end before the softmax, they
after it. Greedy outputs are equal nevertheless; beams rank differently (HF with
`renormalize_logits` and without a forced end gives CTranslate2's beams).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from peers import LONGEST, Marian, TorchTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import TransformerSettings
from regard.inference import inference_model, search_all
from regard.models import Transformer, build
from regard.search import Beam, Greedy, SearchResult
from regard.search.constraints import NEG_INF, min_length
from regard.text import BEGIN, END, UNKNOWN

Ids = list[list[int]]
MOST = 60  # maximum output length of a trained model


class System(Protocol):
    """A decoding system. Only `run` is timed, not the conversion of its inputs and outputs."""

    def given(self, sources: Ids) -> Any: ...

    def run(self, given: Any) -> Any: ...

    def answers(self, found: Any) -> Ids: ...


def random_model(
    settings: TransformerSettings, source: int, target: int, *, seed: int = 1
) -> Transformer:
    """A model with initial weights."""
    torch.manual_seed(seed)
    model = build(settings, source, target).eval()
    assert isinstance(model, Transformer)
    return model


class Regard:
    """Regard as in `regard predict`: fast engine, length batching, batch invariance."""

    def __init__(self, model: Transformer, forced: int | None, beam: int) -> None:
        constraints = () if forced is None else (min_length(forced),)
        self.model, self.most = inference_model(model), forced or MOST
        self.search = Greedy(constraints) if beam == 1 else Beam(beam, constraints=constraints)

    def given(self, sources: Ids) -> Ids:
        return sources

    def run(self, given: Ids) -> list[SearchResult]:
        return search_all(self.search, self.model, given, max_length=self.most)

    def answers(self, found: list[SearchResult]) -> Ids:
        return [some.hypotheses[0].ids for some in found]


class Generate:
    """HF's `generate` with its cache, on scaled_dot_product_attention."""

    def __init__(self, model: Transformer, forced: int | None, beam: int) -> None:
        self.model, self.forced = to_marian(model), forced
        self.options = {
            "num_beams": beam,
            "do_sample": False,
            "use_cache": True,
            "max_new_tokens": (forced or MOST) + 1,
        }
        if beam > 1:
            self.options |= {"length_penalty": 0.0}
        if forced:
            self.options |= {"min_new_tokens": forced, "logits_processor": [self._ending]}

    def given(self, sources: Ids) -> tuple[Tensor, Tensor]:
        return padded(sources)

    @torch.inference_mode()
    def run(self, given: tuple[Tensor, Tensor]) -> Tensor:
        return self.model.generate(given[0], attention_mask=given[1], **self.options)

    def answers(self, found: Tensor) -> Ids:
        return [ids[: [*ids, END].index(END)] for ids in found[:, 1:].tolist()]

    def _ending(self, said: Tensor, scores: Tensor) -> Tensor:
        """Allow only the end at the last position; HF's forced end would have probability 1."""
        if said.shape[1] <= self.forced:
            return scores
        return torch.full_like(scores, NEG_INF).index_copy_(
            1, torch.tensor([END]), scores[:, END, None]
        )


class Loop(TorchTransformer):
    """A plain loop: nn.Transformer over the whole prefix at every step; sources are encoded once.
    It has its own initial weights, so all its outputs have `letters` tokens."""

    def __init__(
        self, settings: TransformerSettings, source: int, target: int, letters: int
    ) -> None:
        super().__init__(settings, source, target)
        self.letters = letters
        self.eval()

    def given(self, sources: Ids) -> Tensor:
        return padded(sources)[0]

    @torch.inference_mode()
    def run(self, given: Tensor) -> Tensor:
        memory = self.transformer.encoder(self._embed(given, self.source))
        said = torch.full((len(given), 1), BEGIN)
        for time in range(1, self.letters + 2):
            prefix, mask = self._embed(said, self.target), self.triangle[:time, :time]
            states = self.transformer.decoder(prefix, memory, tgt_mask=mask, tgt_is_causal=True)
            logits = F.linear(states[:, -1], self.target.weight)
            if time <= self.letters:
                logits[:, END] = NEG_INF
            said = torch.cat([said, logits.argmax(-1, keepdim=True)], 1)
        return said

    def answers(self, found: Tensor) -> Ids:
        return found[:, 1 : self.letters + 1].tolist()


class CTranslate2:
    """CTranslate2 (MIT licence) on a folder that `save` wrote, in float32 or int8."""

    def __init__(
        self, folder: Path, forced: int | None, beam: int, *, compute: str, threads: int
    ) -> None:
        import ctranslate2

        options = {"compute_type": compute, "inter_threads": 1, "intra_threads": threads}
        self.translator = ctranslate2.Translator(str(folder), device="cpu", **options)
        self.forced, most = forced, (forced or MOST) + 1
        lengths = {"min_decoding_length": most if forced else 1, "max_decoding_length": most}
        self.options = {"beam_size": beam, "length_penalty": 0, **lengths}

    def given(self, sources: Ids) -> list[list[str]]:
        return [[str(token) for token in ids] for ids in sources]

    def run(self, given: list[list[str]]) -> Sequence[Any]:
        return self.translator.translate_batch(given, **self.options)

    def answers(self, found: Sequence[Any]) -> Ids:
        return [[int(token) for token in some.hypotheses[0][: self.forced]] for some in found]


def padded(sources: Ids) -> tuple[Tensor, Tensor]:
    """Padded sources with end tokens, and their attention mask."""
    rows = [torch.tensor([*ids, END]) for ids in sources]
    table = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=UNKNOWN)
    real = torch.arange(table.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    return table, real.long()


def to_marian(model: Transformer) -> nn.Module:
    """HF's MarianMTModel with the weights of a Regard model."""
    source, target = (side.table.shape[0] for side in (model.source, model.target))
    marian = Marian(model.settings, source, target).marian.eval()
    marian.generation_config.forced_eos_token_id = None  # see Generate._ending
    pairs: list[tuple[nn.Module, nn.Module]] = []
    for theirs, ours in zip(marian.model.encoder.layers, model.encoder, strict=True):
        pairs += [*_attention(theirs.self_attn, ours.self_attention), *_feed(theirs, ours)]
        pairs += [
            (theirs.self_attn_layer_norm, ours.residual1.norm),
            (theirs.final_layer_norm, ours.residual2.norm),
        ]
    for theirs, ours in zip(marian.model.decoder.layers, model.decoder, strict=True):
        pairs += [*_attention(theirs.self_attn, ours.self_attention), *_feed(theirs, ours)]
        pairs += _attention(theirs.encoder_attn, ours.cross_attention)
        pairs += [
            (theirs.self_attn_layer_norm, ours.residual1.norm),
            (theirs.final_layer_norm, ours.residual3.norm),
        ]
        pairs += [(theirs.encoder_attn_layer_norm, ours.residual2.norm)]
    for theirs, ours in pairs:
        theirs.load_state_dict(ours.state_dict())
    places = torch.arange(LONGEST)
    for theirs, ours in (
        (marian.model.encoder, model.source),
        (marian.model.decoder, model.target),
    ):
        theirs.embed_positions.weight = nn.Parameter(ours.position(places), requires_grad=False)
    marian.model.encoder.embed_tokens.weight = model.source.table
    marian.model.decoder.embed_tokens.weight = model.target.table
    marian.lm_head.weight = model.output.table
    return marian


def _attention(theirs: Any, ours: Any) -> list[tuple[nn.Module, nn.Module]]:
    asked = [(theirs.q_proj, ours.queries), (theirs.k_proj, ours.keys)]
    return [*asked, (theirs.v_proj, ours.values), (theirs.out_proj, ours.out)]


def _feed(theirs: Any, ours: Any) -> list[tuple[nn.Module, nn.Module]]:
    return [(theirs.fc1, ours.feed_forward.inner), (theirs.fc2, ours.feed_forward.outer)]


def save(model: Transformer, folder: Path) -> None:
    """Write the same weights as a folder for CTranslate2, through its own Bart loader.

    Not its MarianMTLoader, which drops the last token and starts from a zero vector, as Marian
    does."""
    from ctranslate2.converters.transformers import BartLoader

    marian = to_marian(model)
    marian.config.normalize_before = marian.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(marian)
    for register, side in (
        (spec.register_source_vocabulary, model.source),
        (spec.register_target_vocabulary, model.target),
    ):
        register([str(token) for token in range(len(side.table))])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        str(UNKNOWN),
        str(BEGIN),
        str(END),
    )
    spec.config.decoder_start_token, spec.config.add_source_eos = str(BEGIN), True
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True)
    spec.save(str(folder))
