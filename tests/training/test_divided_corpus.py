"""DividedCorpus: the held-out pairs of one pass are those of two, and a resumed run has them."""

import pytest

from regard.text import HeldOutSplit
from regard.text.reading import Pair
from regard.training import divided_corpus
from regard.training.divided_corpus import DividedCorpus
from regard.training.pairs import MemoryCorpus
from regard.training.run import run
from tests.commands.small import Quiet, job, pairs, written

PAIRS = [Pair(*pair) for pair in pairs(300)]
SPLIT = HeldOutSplit(7, 1 << 61)  # an eighth


class CountedCorpus(MemoryCorpus):
    """Counts the passes over it."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


@pytest.fixture
def corpus() -> CountedCorpus:
    return CountedCorpus(PAIRS, "a test", "stop")


def test_one_pass_gives_both_parts(corpus):
    divided = DividedCorpus(corpus, None, SPLIT)
    training = list(divided.training_pairs())
    held_out = list(divided.held_out_pairs())
    assert corpus.passes == 1
    assert training == [pair for pair in PAIRS if not SPLIT.is_held_out(pair.source)]
    assert held_out == [pair for pair in PAIRS if SPLIT.is_held_out(pair.source)]
    assert 20 < len(held_out) < 60


def test_recorded_pairs_need_no_pass(corpus):
    recorded = DividedCorpus(corpus, None, SPLIT).record()
    again = DividedCorpus(corpus, None, SPLIT, recorded)
    assert (list(again.held_out_pairs()), corpus.passes) == (
        [pair for pair in PAIRS if SPLIT.is_held_out(pair.source)],
        1,
    )


def test_an_interrupted_pass_is_not_used(corpus):
    divided = DividedCorpus(corpus, None, SPLIT)
    next(divided.training_pairs())
    assert len(list(divided.held_out_pairs())) == sum(SPLIT.is_held_out(s) for s, _ in PAIRS)


def test_another_corpus_and_long_pairs_are_not_recorded(corpus, monkeypatch):
    other = MemoryCorpus(PAIRS[:5], "a test", "stop")
    divided = DividedCorpus(corpus, other, None)
    assert list(divided.training_pairs()) == PAIRS
    assert (list(divided.held_out_pairs()), divided.record()) == (PAIRS[:5], None)
    monkeypatch.setattr(divided_corpus, "MAX_RECORDED", 10)
    assert DividedCorpus(corpus, None, SPLIT).record() is None


@pytest.mark.parametrize("recorded", [True, False])
def test_a_resumed_run_has_the_same_held_out_set(recorded, tmp_path, monkeypatch):
    """Runs of earlier versions, without recorded pairs, too."""
    if not recorded:
        monkeypatch.setattr(divided_corpus, "MAX_RECORDED", 0)
    data, out = written(tmp_path / "pairs.tsv"), tmp_path / "run"
    first = run(job(data, out), Quiet())
    passes = []
    plain = HeldOutSplit.held_out_pairs
    monkeypatch.setattr(
        HeldOutSplit, "held_out_pairs", lambda self, one: passes.append(1) or plain(self, one)
    )
    again = run(job(data, out), Quiet())
    assert len(passes) == (not recorded)
    assert again["metrics"] == first["metrics"]
    assert again["samples"] == first["samples"]
