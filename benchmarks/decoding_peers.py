"""Who decodes in benchmarks/decoding.py: Regard, HF `generate`, a plain nn.Transformer loop and CTranslate2.

Regard, HF Marian and CTranslate2 hold the same weights. A trained model ends its answers itself (`forced` is None). One
with random weights never would: each of its answers has `forced` tokens and takes one step more, for the end. Regard
and HF must say it there and only there; CTranslate2 cannot be made to, and says one more token instead. It also forbids
the end before the softmax, they after it. Greedy answers are equal nevertheless; beams rank otherwise (HF with both of
these habits, `renormalize_logits` and no end, gives CTranslate2's beams).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from peers import LONGEST, Marian, TorchTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import TransformerSettings as SettingsGroup
from regard.inference import inference_model, search_all
from regard.models import Transformer, build
from regard.search import Beam, Greedy, SearchResult
from regard.search.constraints import NEVER, shortest
from regard.text import BEGIN, END, UNKNOWN

Ids = list[list[int]]
MOST = 60  # tokens that an answer of a trained model may have


class Contender(Protocol):
    """A way to decode. Only `run` is timed: turning ids into what a library takes, and back, is nobody's work."""

    def given(self, sources: Ids) -> Any: ...

    def run(self, given: Any) -> Any: ...

    def answers(self, found: Any) -> Ids: ...


def random_model(settings: SettingsGroup, source: int, target: int, *, seed: int = 1) -> Transformer:
    """A model as it begins."""
    torch.manual_seed(seed)
    model = build(settings, source, target).eval()
    assert isinstance(model, Transformer)
    return model


class Regard:
    """As the product searches: the swift twin, grouped, close calls decided alone."""

    def __init__(self, model: Transformer, forced: int | None, beam: int) -> None:
        rules = () if forced is None else (shortest(forced),)
        self.model, self.most = inference_model(model), forced or MOST
        self.search = Greedy(rules) if beam == 1 else Beam(beam, rules=rules)

    def given(self, sources: Ids) -> Ids:
        return sources

    def run(self, given: Ids) -> list[SearchResult]:
        return search_all(self.search, self.model, given, most=self.most)

    def answers(self, found: list[SearchResult]) -> Ids:
        return [some.hypotheses[0].ids for some in found]


class Generate:
    """HF's `generate` with its cache, on scaled_dot_product_attention."""

    def __init__(self, model: Transformer, forced: int | None, beam: int) -> None:
        self.model, self.forced = twin(model), forced
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
        """Only the end at the last place; HF's own forced end would count as certain and rank beams otherwise."""
        if said.shape[1] <= self.forced:
            return scores
        return torch.full_like(scores, NEVER).index_copy_(1, torch.tensor([END]), scores[:, END, None])


class Loop(TorchTransformer):
    """What people write first: nn.Transformer over the whole prefix at every step. Sources are read once. Its weights
    are its own, as it begins, so that all its answers have `letters` tokens."""

    def __init__(self, settings: SettingsGroup, source: int, target: int, letters: int) -> None:
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
                logits[:, END] = NEVER
            said = torch.cat([said, logits.argmax(-1, keepdim=True)], 1)
        return said

    def answers(self, found: Tensor) -> Ids:
        return found[:, 1 : self.letters + 1].tolist()


class CTranslate2:
    """CTranslate2 (MIT licence) on a folder that `save` wrote, in float32 or int8."""

    def __init__(self, folder: Path, forced: int | None, beam: int, *, compute: str, threads: int) -> None:
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
    """Sources with their ends as rows of one length, and which places are real."""
    rows = [torch.tensor([*ids, END]) for ids in sources]
    table = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=UNKNOWN)
    real = torch.arange(table.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    return table, real.long()


def twin(model: Transformer) -> nn.Module:
    """HF's MarianMTModel with the weights of a Regard model."""
    source, target = (side.table.shape[0] for side in (model.source, model.target))
    marian = Marian(model.settings, source, target).marian.eval()
    marian.generation_config.forced_eos_token_id = None  # see Generate._ending
    pairs: list[tuple[nn.Module, nn.Module]] = []
    for theirs, ours in zip(marian.model.encoder.layers, model.encoder, strict=True):
        pairs += [*_attention(theirs.self_attn, ours.self_attention), *_feed(theirs, ours)]
        pairs += [(theirs.self_attn_layer_norm, ours.residual1.norm), (theirs.final_layer_norm, ours.residual2.norm)]
    for theirs, ours in zip(marian.model.decoder.layers, model.decoder, strict=True):
        pairs += [*_attention(theirs.self_attn, ours.self_attention), *_feed(theirs, ours)]
        pairs += _attention(theirs.encoder_attn, ours.cross_attention)
        pairs += [(theirs.self_attn_layer_norm, ours.residual1.norm), (theirs.final_layer_norm, ours.residual3.norm)]
        pairs += [(theirs.encoder_attn_layer_norm, ours.residual2.norm)]
    for theirs, ours in pairs:
        theirs.load_state_dict(ours.state_dict())
    places = torch.arange(LONGEST)
    for theirs, ours in ((marian.model.encoder, model.source), (marian.model.decoder, model.target)):
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
    """The same weights as a folder for CTranslate2, through its own loader for models of Marian's kind.

    Not its MarianMTLoader: that one drops the last token and starts from a zero vector, as Marian's own models do."""
    from ctranslate2.converters.transformers import BartLoader

    marian = twin(model)
    marian.config.normalize_before = marian.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(marian)
    for register, side in (
        (spec.register_source_vocabulary, model.source),
        (spec.register_target_vocabulary, model.target),
    ):
        register([str(token) for token in range(len(side.table))])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = str(UNKNOWN), str(BEGIN), str(END)
    spec.config.decoder_start_token, spec.config.add_source_eos = str(BEGIN), True
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True)
    spec.save(str(folder))
