"""Pipeline: from text to answers, with scores, alignments and attention weights."""

import warnings

import pytest
import torch

import regard
from regard import bundle as bundles
from regard.bundle import Bundle
from regard.config import RecurrentSettings, TransformerSettings
from regard.errors import RegardError
from regard.models import build
from regard.pipeline import FIRST_LINES, Pipeline
from regard.ragged import Ragged
from regard.search import Greedy
from regard.text import BEGIN, END, train_tokenizer
from regard.trace import neighbours

SETTINGS = {
    "transformer": TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=16, tie_embeddings="none"
    ),
    "recurrent": RecurrentSettings(width=16, attention="bahdanau"),
}


WORDS = ["abandon", "zebra", "aba", "n", "nabob"]


TEXTS = ["ein Käse für die Maus", "日本 und €", "die Maus für zwei"] * 3


def random_pipeline(
    family: str = "transformer", kind: str = "words", card: dict | None = None
) -> Pipeline:
    """Random weights, sharp enough that answers differ and end."""
    torch.manual_seed(3)
    source = train_tokenizer("characters", WORDS)
    target = (
        train_tokenizer("words", ["AH B AE N", "Z IY"])
        if kind == "words"
        else train_tokenizer(kind, TEXTS)
    )
    model = build(SETTINGS[family], len(source), len(target)).eval()
    with torch.no_grad():
        model.output.table.mul_(4)
    card = {"longest": {"source": 8, "target": 2}} if card is None else card
    return Pipeline(Bundle(model, source, target, SETTINGS[family], card))


@pytest.fixture(scope="module", params=SETTINGS)
def t(request) -> Pipeline:
    return random_pipeline(request.param)


@pytest.fixture(scope="module")
def spelling() -> Pipeline:
    return regard.load("spelling", device="cpu")


def forced(t: Pipeline, source: str, ids: list[int]) -> list[float]:
    source_ids = Ragged.of([torch.tensor([*t.bundle.source.encode(source), END])])
    with torch.no_grad():
        logits = t.model(source_ids, Ragged.of([torch.tensor([BEGIN, *ids])])).values
    return logits.log_softmax(-1).gather(1, torch.tensor([*ids, END])[:, None])[:, 0].tolist()


def test_answer_has_text_tokens_and_log_probabilities(t):
    answer = t("zebra")
    assert str(answer) == answer.text == t.bundle.target.decode(answer.ids)
    assert answer.tokens == [t.bundle.target.label(id) for id in answer.ids]
    assert answer.logps == pytest.approx(forced(t, "zebra", answer.ids), abs=1e-4)
    assert answer.score == pytest.approx(answer.logp, abs=1e-4)
    assert (answer.source, answer.unknown, answer.alignment, answer.weights) == (
        "zebra",
        [],
        None,
        None,
    )


def test_saved_bundle_gives_the_same_answers(t, tmp_path):
    bundles.save(tmp_path / "b", t.bundle)
    loaded = regard.load(tmp_path / "b", device="cpu")
    assert [a.ids for a in loaded.many(WORDS)] == [a.ids for a in t.many(WORDS)]
    with pytest.raises(RegardError, match=r"^long must be warn, refuse or allow; got 'cut'$"):
        regard.load(tmp_path / "b", long="cut")


def test_many_gives_each_line_its_own_answer(t):
    lines = [*WORDS, "", "zebra\r\n", "aba\n", "\n", "\r\n"]
    answers = list(t.many(lines))
    assert [a.source for a in answers] == [*WORDS, "", "zebra", "aba", "", ""]
    assert [a.text for a in answers] == [str(t(line)) for line in lines]
    assert {a.text for a in answers if not a.source} == {""}
    assert len({a.text for a in answers}) > 2
    assert list(t.many([])) == []


def test_many_does_not_read_ahead_of_its_window(t):
    read = 0

    def lines():
        nonlocal read
        while True:
            read += 1
            yield "n"

    answers = t.many(lines(), Greedy())
    next(answers)
    assert read == FIRST_LINES
    for _ in range(FIRST_LINES):
        next(answers)
    assert read == 3 * FIRST_LINES


def test_best_is_sorted_without_duplicates(t):
    answers = t.best("abandon", n=5)
    assert answers[0].text == t("abandon", t.search(beam=5)).text
    assert 2 <= len({a.text for a in answers}) == len(answers) <= 5
    scores = [a.score for a in answers]
    assert scores == sorted(scores, reverse=True)
    spelt = [answer for answer in answers if t.bundle.target.encode(answer.text) == answer.ids]
    assert spelt  # random weights also say begin and unknown, which no text spells
    for answer in spelt:
        assert answer.logps == pytest.approx(t.score("abandon", answer.text).logps, abs=1e-4)


def test_samples_depend_on_the_seed_only(t):
    one, again, other = (t.sample("zebra", 6, seed=seed, temperature=2.0) for seed in (1, 1, 2))
    assert [a.ids for a in one] == [a.ids for a in again] != [a.ids for a in other]
    assert [a.ids for a in t.sample("zebra", 2, seed=1, temperature=2.0)] == [
        a.ids for a in one[:2]
    ]
    assert [(a.source, a.text) for a in t.sample("", 2)] == [("", "")] * 2


@pytest.mark.parametrize("kind", ["words", "bytes", "characters", "bpe"])
@pytest.mark.parametrize(("beam", "task"), [(1, "text"), (4, "symbols"), (4, "text")])
def test_streamed_pieces_join_to_the_answer(kind, beam, task):
    t = random_pipeline("transformer", kind, {"task": task, "longest": {"source": 8, "target": 3}})
    for word in WORDS[:3]:
        assert "".join(t.stream(word, beam=beam)) == t(word, t.search(beam=beam)).text
    assert list(t.stream("")) == []


def test_incomplete_character_is_not_streamed():
    t = random_pipeline(kind="bytes")
    spelled = [3 + byte for byte in "aé€b".encode()]
    shown = []
    for n in range(len(spelled) + 1):
        shown.append(t.bundle.target.decode(spelled[:n]).rstrip("\N{REPLACEMENT CHARACTER}"))
    assert shown == ["", "a", "a", "aé", "aé", "aé", "aé€", "aé€b"]


def test_scores_are_teacher_forced(t):
    pairs = [(word, text) for word in WORDS for text in ("AH B", "Z", "", "AE N AH B")] * 5
    for (source, target), answer in list(zip(pairs, t.scores(pairs), strict=True))[:20:3]:
        assert answer.text == target
        assert answer.logps == pytest.approx(
            forced(t, source, t.bundle.target.encode(target)), abs=1e-4
        )


def test_alignment_is_the_mean_cross_attention(t):
    answer = t("zebra", alignment=True, weights=True)
    assert answer.alignment.shape == (len(answer.ids) + 1, 6)
    torch.testing.assert_close(answer.alignment.sum(1), torch.ones(len(answer.ids) + 1))
    names = {id(part): name for name, part in t.model.named_modules()}
    looked = [answer.weights[names[id(part)]] for part in t.model.cross_attentions()]
    torch.testing.assert_close(answer.alignment, torch.cat(looked).mean(0))
    given = t.align("zebra", "AH B")
    assert (given.text, given.alignment.shape) == ("AH B", (3, 6))
    torch.testing.assert_close(t.align("zebra").alignment, answer.alignment)


def test_weights_agree_with_a_computation_by_hand():
    t = random_pipeline("transformer")
    answer, model = t("zebra", weights=True), t.model
    source = Ragged.of([torch.tensor([*t.bundle.source.encode("zebra"), END])])
    with torch.no_grad():
        x, heads = model.source(source), model.encoder[0].self_attention
        normal = model.encoder[0].residual1.norm(x.values)
        q, k = (
            part(normal).unflatten(-1, (2, 8)).transpose(0, 1)
            for part in (heads.queries, heads.keys)
        )
        q, k = (heads.rotation.rotate(part, torch.arange(6)) for part in (q, k))
        expected = (q @ k.transpose(1, 2) / 8**0.5).softmax(-1)
    torch.testing.assert_close(answer.weights["encoder.0.self_attention.attention"], expected)
    count = len(answer.ids) + 1
    assert {name: tuple(w.shape) for name, w in answer.weights.items()} == {
        "encoder.0.self_attention.attention": (2, 6, 6),
        **{f"decoder.{n}.self_attention.attention": (2, count, count) for n in (0, 1)},
        **{f"decoder.{n}.cross_attention.attention": (2, count, 6) for n in (0, 1)},
    }
    for name, weights in answer.weights.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]), msg=name)


def test_alternatives_differ_at_the_position(t):
    best = t("abandon")
    for position in {0, 1, len(best.ids)}:
        answers = t.alternatives("abandon", position, n=3)
        logps = [a.logps[position] for a in answers]
        assert logps == sorted(logps, reverse=True)
        assert all(a.ids[:position] == best.ids[:position] for a in answers)
        assert len({tuple(a.ids[: position + 1]) for a in answers}) == len(answers) >= 1
    wrong = len(best.ids) + 1
    with pytest.raises(
        RegardError, match=rf"has positions 0 to {wrong - 1} \(the end\); got {wrong}$"
    ):
        t.alternatives("abandon", wrong)


def test_long_sources_warn_or_are_refused_or_allowed(t):
    long = "a" * 9
    what = r"'aaaaaaaaa' has 9 tokens, more than any training source \(8\)"
    with pytest.warns(
        UserWarning,
        match=rf"^{what}; the answer may be poor$",
    ):
        answer = t(long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pipeline(t.bundle, long="allow")(long).text == answer.text
    with pytest.raises(
        RegardError,
        match=rf"^{what}; shorten it, or set long to allow$",
    ):
        Pipeline(t.bundle, long="refuse")(long)


def test_unknown_symbols_are_named(t):
    assert t("zebQa!").unknown == ["Q", "!"]


def test_bundle_without_lengths_on_its_card():
    assert random_pipeline(card={})("zebra").logps


def test_empty_answers_share_no_state(spelling):
    spelling("").ids.append(7)
    one, other = spelling.sample("", n=2)
    one.tokens.append("x")
    assert (spelling("").ids, spelling(" ").ids, other.tokens) == ([], [], [])


def test_zero_alternatives_are_refused(spelling):
    with pytest.raises(RegardError, match=r"^n must be at least 1; got -1$"):
        spelling.alternatives("attention", 0, -1)
    with pytest.raises(RegardError, match=r"^n must be at least 1; got 0$"):
        neighbours(regard.record(spelling, "at"), "source", 0, 0)


def test_white_space_around_a_text_is_not_unknown(spelling):
    for text, unknown in ((" attention\t", []), (" atté ntion\t", ["é", " "])):
        assert spelling(text).unknown == unknown
        assert regard.record(spelling, text).answer.unknown == unknown


def test_a_single_text_is_no_list_of_lines(spelling):
    message = r"^lines must be a list or a file of texts; for one text give \['abc'\]"
    with pytest.raises(RegardError, match=message):
        list(spelling.many("abc"))
