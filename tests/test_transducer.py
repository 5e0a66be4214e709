"""Pipeline: text in, text out, with everything one may want to know about an answer."""

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
from regard.search import Beam, Greedy, Sampling
from regard.text import BEGIN, END, train_tokenizer

SETTINGS = {
    "transformer": TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=2, ffn_width=16, tie_embeddings="none"
    ),
    "recurrent": RecurrentSettings(width=16, attention="bahdanau"),
}
WORDS = ["abandon", "zebra", "aba", "n", "nabob"]
TEXTS = ["ein Käse für die Maus", "日本 und €", "die Maus für zwei"] * 3


def made(family: str = "transformer", kind: str = "words", card: dict | None = None) -> Pipeline:
    """Random weights, made sharp enough that answers differ and end."""
    torch.manual_seed(3)
    source = train_tokenizer("characters", WORDS)
    target = train_tokenizer("words", ["AH B AE N", "Z IY"]) if kind == "words" else train_tokenizer(kind, TEXTS)
    model = build(SETTINGS[family], len(source), len(target)).eval()
    with torch.no_grad():
        model.output.table.mul_(4)
    card = {"longest": {"source": 8, "target": 2}} if card is None else card
    return Pipeline(Bundle(model, source, target, SETTINGS[family], card))


@pytest.fixture(scope="module", params=SETTINGS)
def t(request) -> Pipeline:
    return made(request.param)


def forced(t: Pipeline, source: str, ids: list[int]) -> list[float]:
    asked = Ragged.of([torch.tensor([*t.bundle.source.encode(source), END])])
    with torch.no_grad():
        logits = t.model(asked, Ragged.of([torch.tensor([BEGIN, *ids])])).values
    return logits.log_softmax(-1).gather(1, torch.tensor([*ids, END])[:, None])[:, 0].tolist()


def test_an_answer_carries_text_tokens_and_numbers(t):
    answer = t("zebra")
    assert str(answer) == answer.text == t.bundle.target.decode(answer.ids)
    assert answer.tokens == [t.bundle.target.label(id) for id in answer.ids]
    assert answer.logps == pytest.approx(forced(t, "zebra", answer.ids), abs=1e-4)
    assert answer.score == pytest.approx(answer.logp, abs=1e-4)
    assert (answer.source, answer.unknown, answer.alignment, answer.weights) == ("zebra", [], None, None)


def test_a_saved_bundle_answers_as_before(t, tmp_path):
    bundles.save(tmp_path / "b", t.bundle)
    loaded = regard.load(tmp_path / "b", device="cpu")
    assert [a.ids for a in loaded.many(WORDS)] == [a.ids for a in t.many(WORDS)]
    with pytest.raises(RegardError, match=r"^long must be warn, refuse or allow; got 'cut'$"):
        regard.load(tmp_path / "b", long="cut")


def test_many_answers_in_order_each_as_alone(t):
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


def test_best_are_sorted_and_no_text_comes_twice(t):
    answers = t.best("abandon", n=5)
    assert answers[0].text == t("abandon", t.search(beam=5)).text
    assert 2 <= len({a.text for a in answers}) == len(answers) <= 5
    scores = [a.score for a in answers]
    assert scores == sorted(scores, reverse=True)
    spelt = [answer for answer in answers if t.bundle.target.encode(answer.text) == answer.ids]
    assert spelt  # random weights also say begin and unknown, which no text spells
    for answer in spelt:
        assert answer.logps == pytest.approx(t.score("abandon", answer.text).logps, abs=1e-4)


def test_samples_come_again_with_their_seed(t):
    one, again, other = (t.sample("zebra", 6, seed=seed, temperature=2.0) for seed in (1, 1, 2))
    assert [a.ids for a in one] == [a.ids for a in again] != [a.ids for a in other]
    assert [a.ids for a in t.sample("zebra", 2, seed=1, temperature=2.0)] == [a.ids for a in one[:2]]
    assert [(a.source, a.text) for a in t.sample("", 2)] == [("", "")] * 2


@pytest.mark.parametrize("kind", ["words", "bytes", "characters", "bpe"])
@pytest.mark.parametrize(("beam", "task"), [(1, "text"), (4, "symbols"), (4, "text")])
def test_pieces_of_a_stream_join_to_the_answer(kind, beam, task):
    t = made("transformer", kind, {"task": task, "longest": {"source": 8, "target": 3}})
    for word in WORDS[:3]:
        assert "".join(t.stream(word, beam=beam)) == t(word, t.search(beam=beam)).text
    assert list(t.stream("")) == []


def test_half_a_character_is_not_streamed():
    t = made(kind="bytes")
    spelled = [3 + byte for byte in "aé€b".encode()]
    shown = []
    for n in range(len(spelled) + 1):
        shown.append(t.bundle.target.decode(spelled[:n]).rstrip("\N{REPLACEMENT CHARACTER}"))
    assert shown == ["", "a", "a", "aé", "aé", "aé", "aé€", "aé€b"]


def test_scores_are_teacher_forced_in_any_number(t):
    pairs = [(word, text) for word in WORDS for text in ("AH B", "Z", "", "AE N AH B")] * 5
    for (source, target), answer in list(zip(pairs, t.scores(pairs), strict=True))[:20:3]:
        assert answer.text == target
        assert answer.logps == pytest.approx(forced(t, source, t.bundle.target.encode(target)), abs=1e-4)


def test_alignments_are_the_mean_of_the_weights_that_look_at_the_source(t):
    answer = t("zebra", alignment=True, weights=True)
    assert answer.alignment.shape == (len(answer.ids) + 1, 6)
    torch.testing.assert_close(answer.alignment.sum(1), torch.ones(len(answer.ids) + 1))
    names = {id(part): name for name, part in t.model.named_modules()}
    looked = [answer.weights[names[id(part)]] for part in t.model.cross_attentions()]
    torch.testing.assert_close(answer.alignment, torch.cat(looked).mean(0))
    given = t.align("zebra", "AH B")
    assert (given.text, given.alignment.shape) == ("AH B", (3, 6))
    torch.testing.assert_close(t.align("zebra").alignment, answer.alignment)


def test_weights_of_every_layer_and_head_are_those_of_a_pass_by_hand():
    t = made("transformer")
    answer, model = t("zebra", weights=True), t.model
    source = Ragged.of([torch.tensor([*t.bundle.source.encode("zebra"), END])])
    with torch.no_grad():
        x, heads = model.source(source), model.encoder[0].self_attention
        normal = model.encoder[0].residual1.norm(x.values)
        q, k = (part(normal).unflatten(-1, (2, 8)).transpose(0, 1) for part in (heads.queries, heads.keys))
        q, k = (heads.turn.turn(part, torch.arange(6)) for part in (q, k))
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


def test_alternatives_go_as_the_answer_and_then_differ(t):
    best = t("abandon")
    for position in {0, 1, len(best.ids)}:
        answers = t.alternatives("abandon", position, n=3)
        logps = [a.logps[position] for a in answers]
        assert logps == sorted(logps, reverse=True)
        assert all(a.ids[:position] == best.ids[:position] for a in answers)
        assert len({tuple(a.ids[: position + 1]) for a in answers}) == len(answers) >= 1
    wrong = len(best.ids) + 1
    with pytest.raises(RegardError, match=rf"has places 0 to {wrong - 1} \(the end\); got {wrong}$"):
        t.alternatives("abandon", wrong)


def test_long_sources_are_warned_of_refused_or_allowed(t):
    long = "a" * 9
    with pytest.warns(UserWarning, match=r"^'aaaaaaaaa' has 9 tokens; .* at most 8: its answer may be poor$"):
        answer = t(long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Pipeline(t.bundle, long="allow")(long).text == answer.text
    with pytest.raises(RegardError, match=r"^'aaaaaaaaa' has 9 tokens; .* at most 8; cut it, or allow long sources$"):
        Pipeline(t.bundle, long="refuse")(long)


def test_unknown_symbols_are_named(t):
    assert t("zebQa!").unknown == ["Q", "!"]


def test_a_bundle_without_sizes_on_its_card_answers():
    assert made(card={})("zebra").logps


def test_rules_by_words(t):
    often = sorted({token for a in t.best("zebra", n=5) for token in a.tokens} & {"AH", "B", "AE", "N", "Z", "IY"})[0]
    for answer in t.best("zebra", n=3, banned=[often, "Z IY"], shortest=2, longest=4):
        assert often not in answer.tokens
        assert "Z IY" not in answer.text
        assert 2 <= len(answer.ids) <= 4
    assert t("zebra", t.search(prefix="N N Z")).text.startswith("N N Z")
    assert {"AE", "B"} <= set(t("zebra", t.search(required=["AE", "B"])).tokens)
    once = t("zebra", t.search(no_repeat_ngram=1, shortest=4)).tokens
    assert len(set(once)) == len(once) >= 4


def test_one_word_may_be_given_alone(t):
    for rule in ("banned", "required"):
        alone, listed = (t.best("zebra", **{rule: words}) for words in ("IY", ["IY"]))
        assert [answer.ids for answer in alone] == [answer.ids for answer in listed]


def test_a_search_from_plain_words(t):
    assert isinstance(t.search(beam=1), Greedy)
    assert isinstance(t.search(beam=1, required=["AH"]), Beam)
    assert t.search().length.alpha == 0
    assert made(card={"task": "text"}).search().length.alpha == 1
    assert [a.ids for a in t.many(WORDS, Sampling(seed=7))] == [t.sample(word, seed=7)[0].ids for word in WORDS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, r"^a beam is at least 1 wide; got 0$"),
        ({"required": ["QUX"]}, r"^'QUX' contains symbols that the target vocabulary lacks; use known symbols$"),
        ({"banned": [" "]}, r"^' ' contains symbols that the target vocabulary lacks"),
        ({"prefix": "QUX"}, r"^'QUX' contains symbols that the target vocabulary lacks"),
        ({"penalty": "gnnt"}, r"^unknown length penalty 'gnnt'; did you mean 'gnmt'\?$"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(t, options, message):
    with pytest.raises(RegardError, match=message):
        t.search(**options)


@pytest.mark.parametrize("beam", [1, 4])
def test_rules_that_no_answer_keeps_are_an_error(t, beam):
    with pytest.raises(RegardError, match=r"no answer .*loosen one"):
        t("zebra", t.search(beam=beam, shortest=5, longest=3))
