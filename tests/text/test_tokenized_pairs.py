"""Tokenized pairs on disk: exact ids from any number of workers, atomic, in bounded memory."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from regard.text import (
    TOKENIZERS,
    TokenizedPairs,
    Tokenizer,
    corpus_tokenization,
    tokenize_corpus,
    tokenized_pairs,
    train_tokenizer,
)
from regard.text.tokenized_pairs import IdsError
from regard.text.tokenizer_workers import Encoder, WorkerError, WorkerPool

TEXTS = [
    "the cat sat",
    " on  the mat ",
    "größer e\u0308\u0301 か\u3099",
    "a\nb\x00c\td",
    "",
    "<0x0A> < end >",
    "公园 散步 x\u3000y",
]
SCRAPS = [
    " ",
    "  ",
    "the",
    "cat",
    "\u0301",
    "e",
    "\n",
    "\t",
    "公",
    "か",
    "\u3099",
    "1",
    "9",
    "<0x41>",
    "\u3000",
    "\x00",
    ",",
]


def trained(kind: str) -> Tokenizer:
    return train_tokenizer(
        kind, [text for text in TEXTS * 3 if text], size=400 if kind in ("bpe", "unigram") else None
    )


def pairs_of(count: int) -> list[tuple[str, str]]:
    draw = random.Random(0)
    return [
        tuple("x" + "".join(draw.choices(SCRAPS, k=draw.randrange(9))) for _ in "st")
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer("words", ["a b c d"])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_encoding_by_words_equals_encoding_texts(kind: str):
    """The encoder caches words: every kind splits before a space, and NFC never crosses one."""
    tokenizer = trained(kind)
    encode = Encoder(tokenizer.library, "<u2")
    draw = random.Random(1)
    texts = [*TEXTS, *("".join(draw.choices(SCRAPS, k=draw.randrange(10))) for _ in range(500))]
    for block in (texts, texts[:3], texts[4:5], ["".join(map(chr, range(32))), "a", "b"]):
        flat, lengths = encode(block)
        ends = np.cumsum(np.frombuffer(lengths, np.int64))
        assert [part.tolist() for part in np.split(np.frombuffer(flat, "<u2"), ends)[:-1]] == [
            tokenizer.encode(text) for text in block
        ]
    assert encode([]) == (b"", b"")


def test_encoder_cache_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("regard.text.tokenizer_workers.MAX_CACHED_CHARACTERS", 50)
    encode = Encoder(trained("characters").library, "<u2")
    for i in range(200):
        encode([f"the {i} cat"])
        assert sum(map(len, encode._cache)) <= 60


@pytest.mark.parametrize("workers", [1, 2])
def test_files_contain_the_ids(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus_tokenization, "BLOCK_PAIRS", 7)
    source, target = trained("bpe"), trained("characters")
    progress: list[int] = []
    made = pairs_of(100)
    tokenize_corpus(
        iter(made), source, target, tmp_path / "ids", workers=workers, progress=progress.append
    )
    for side, tokenizer, texts in zip(
        ("source", "target"), (source, target), zip(*made, strict=True), strict=True
    ):
        offsets = np.fromfile(tmp_path / f"ids/{side}.offsets", "<i8")
        flat = np.fromfile(tmp_path / f"ids/{side}.ids", "<u2")
        assert offsets[0] == 0
        parts = [flat[a:b].tolist() for a, b in pairwise(offsets)]
        assert parts == [tokenizer.encode(text) for text in texts]
    assert progress == [*range(7, 100, 7), 100]
    assert sorted(os.listdir(tmp_path)) == ["ids"]


def test_pairs_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenized_pairs, "RESIDENT_BYTES", 100)  # release the pages after each read
    source, target, made = trained("bpe"), trained("bytes"), pairs_of(50)
    read = tokenize_corpus(made, source, target, tmp_path / "ids")
    assert len(read) == 50
    for i in (0, 7, 49, -1):
        assert read.source(i).tolist() == source.encode(made[i][0])
        assert read.target(i).tolist() == target.encode(made[i][1])
    assert read.source_lengths.tolist() == [len(source.encode(text)) for text, _ in made]
    assert read.target_lengths.tolist() == [len(target.encode(text)) for _, text in made]
    assert read.source_lengths.dtype == np.int32
    (values, ends), _ = read.gather(np.array([3, 3, 40]))
    assert values.tolist() == [id for i in (3, 3, 40) for id in source.encode(made[i][0])]
    assert np.diff(ends).tolist() == [len(source.encode(made[i][0])) for i in (3, 3, 40)]
    with pytest.raises(IndexError, match="pair 50 of 50"):
        read.source(50)


def test_counts_and_unknown_symbols_are_stored(tmp_path: Path, words: Tokenizer):
    made = [("a b", "c"), ("a €  b €", "d a b c"), ("¥ a", "d")]
    read = tokenize_corpus(made, words, words, tmp_path / "ids", fingerprint={"pairs.tsv": "123"})
    written = json.loads((tmp_path / "ids/ids.json").read_text())
    assert {name: value for name, value in written.items() if name != "crc32"} == read.counts
    assert written["pairs"] == 3
    assert written["source"] == {
        "tokens": 8,
        "longest": 4,
        "unknown": 3,
        "symbols": {"€": 2, "¥": 1},
    }
    assert written["target"] == {"tokens": 6, "longest": 4, "unknown": 0, "symbols": {}}
    assert written["fingerprint"]["pairs.tsv"] == "123"


def test_large_vocabularies_use_four_bytes(tmp_path: Path):
    many = train_tokenizer("words", (str(i) for i in range(70_000)), size=70_003)
    read = tokenize_corpus([("69999 0", "1")], many, many, tmp_path / "ids")
    assert read.counts["dtype"] == "<u4"
    assert many.decode(read.source(0).tolist()) == "69999 0"


def test_folder_is_reused_and_changes_are_named(tmp_path: Path, words: Tokenizer):
    folder = tmp_path / "ids"
    tokenize_corpus(
        [("a", "b")], words, words, folder, fingerprint={"pairs.tsv": "1", "reading": "so"}
    )

    def untouched() -> Iterator[tuple[str, str]]:
        raise AssertionError
        yield

    again = tokenize_corpus(
        untouched(), words, words, folder, fingerprint={"reading": "so", "pairs.tsv": "1"}
    )
    assert len(again) == 1
    other = train_tokenizer("words", ["a"])
    with pytest.raises(IdsError) as error:
        tokenize_corpus(
            untouched(), words, other, folder, fingerprint={"pairs.tsv": "2", "reading": "so"}
        )
    assert str(error.value) == (
        f"'{folder}' was made from other data: 'pairs.tsv', 'target tokenizer' "
        "changed; start over with --restart, or use another folder"
    )


DAMAGE = {
    "ids.json is damaged": lambda folder: (folder / "ids.json").write_text('{"versio'),
    "ids.json is missing": lambda folder: (folder / "ids.json").unlink(),
    "it has format version 0, not 1": lambda folder: (folder / "ids.json").write_text(
        '{"version": 0}'
    ),
    "source.ids has 2 bytes instead of 4": lambda folder: (folder / "source.ids").write_bytes(
        bytes(2)
    ),
    "target.offsets is missing": lambda folder: (folder / "target.offsets").unlink(),
    "target.ids is damaged at byte 0 or after it": lambda folder: (
        folder / "target.ids"
    ).write_bytes(bytes(2)),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_damaged_folders_are_made_again(tmp_path: Path, words: Tokenizer, reason: str):
    folder, pairs = tmp_path / "ids", [("a b", "b")]
    tokenize_corpus(pairs, words, words, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    DAMAGE[reason](folder)
    with pytest.raises(
        IdsError,
        match=rf"^'.*ids' cannot be used: {reason}; run the same `regard train` command to make it "
        r"again$",
    ):
        TokenizedPairs.open(folder, verify=True)
    reports: list[str] = []
    tokenize_corpus(pairs, words, words, folder, report=reports.append)
    assert reports == [f"{str(folder)!r}: {reason}; tokenizing again"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_every_flipped_byte_is_found(tmp_path: Path, words: Tokenizer):
    folder = tmp_path / "ids"
    tokenize_corpus([("a b", "b")] * 3, words, words, folder)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        own = range(data.index(b'"crc32"'), len(data)) if path.suffix == ".json" else ()
        for place in sorted({*range(len(data))} - {*own}):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(IdsError):
                TokenizedPairs.open(folder, verify=True)
        path.write_bytes(data)
    TokenizedPairs.open(folder, verify=True)


def test_folders_without_checksums_are_accepted(tmp_path: Path, words: Tokenizer):
    folder, pairs = tmp_path / "ids", [("a b", "b")]
    tokenize_corpus(pairs, words, words, folder)
    counts = json.loads((folder / "ids.json").read_text())
    del counts["checksums"], counts["crc32"]  # as older versions wrote it
    (folder / "ids.json").write_text(json.dumps(counts, indent=2))
    assert len(tokenize_corpus(pairs, words, words, folder, report=pytest.fail)) == 1


def test_a_folder_with_other_files_is_kept(tmp_path: Path, words: Tokenizer):
    folder = tmp_path / "ids"
    folder.mkdir()
    (folder / "mine.txt").write_text("precious")
    with pytest.raises(
        IdsError,
        match=r"^'.*ids' has other files and is not a folder of ids .*; use another folder$",
    ):
        tokenize_corpus([("a b", "b")], words, words, folder)
    assert (folder / "mine.txt").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_ids_are_not_removed(tmp_path: Path, words: Tokenizer):
    folder = tmp_path / "ids"
    tokenize_corpus([("a b", "b")], words, words, folder)
    (folder / "source.ids").chmod(0)
    with pytest.raises(IdsError, match=r"^cannot read '.*source.ids': Permission denied$"):
        tokenize_corpus([("a b", "b")], words, words, folder)


def test_failure_leaves_no_files(tmp_path: Path, words: Tokenizer):
    def broken() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        tokenize_corpus(broken(), words, words, tmp_path / "ids")
    with pytest.raises(IdsError, match=r"^there are no pairs to tokenize$"):
        tokenize_corpus([], words, words, tmp_path / "ids")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(
        IdsError, match=r"^cannot write ids to '.*file/ids': .*; partial files were removed$"
    ):
        tokenize_corpus([("a", "b")], words, words, tmp_path / "file/ids")


def test_dead_worker_is_an_error(words: Tokenizer):
    with WorkerPool(1, (words.library, words.library), "<u2") as pool:
        assert np.frombuffer(
            pool.submit((["a"], ["b"])).result()[1][0], "<u2"
        ).tolist() == words.encode("b")
        pool._processes[0].kill()
        with pytest.raises(
            WorkerError, match=r"^a tokenization process ended early with signal 9; "
        ):
            pool.submit((["a"], ["b"])).result()
    assert pool._processes[0].returncode == -signal.SIGKILL


SCRIPT = """
import sys
from pathlib import Path
from regard.text import tokenize_corpus, train_tokenizer
folder, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = [f"{i:x}" for i in range(4000)]
tokenizer = train_tokenizer("characters", words)
def pairs():
    for i in range(count):
        source = " ".join(words[i % 3000 : i % 3000 + length])
        yield source, f"{i:x} " + source
def resident(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
Path("/proc/self/clear_refs").write_text("5")  # reset the peak
before = resident("VmRSS")
read = tokenize_corpus(pairs(), tokenizer, tokenizer, folder, workers=2,
    progress=lambda done: print(done, flush=True))
for batch in range(100):
    read.source(batch * len(read) // 100)
print("grown", resident("VmHWM") - before)
"""  # neither a __main__ guard nor an importable file


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kill_leaves_no_partial_folder(tmp_path: Path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "ids")]
    endless = [*command, "5000000", "5"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.kill()
        deadline = time.monotonic() + 60
        while any(map(is_alive, children)):
            assert time.monotonic() < deadline, "workers outlive their parent"
            time.sleep(0.05)
        assert run.stderr.read() == b""  # they exit silently
    assert len(children) == 2
    assert not (tmp_path / "ids").exists()
    subprocess.run([*command, "20000", "5"], check=True, capture_output=True)
    assert [folder.name for folder in tmp_path.iterdir()] == ["ids"]
    assert len(TokenizedPairs.open(tmp_path / "ids")) == 20_000


def is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path):
    """Peak resident memory from /proc: getrusage would include the memory of pytest before the
    fork."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "ids"), "30000", "150"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tokens = sum(
        TokenizedPairs.open(tmp_path / "ids").counts[side]["tokens"]
        for side in ("source", "target")
    )
    grown = 1024 * int(done.stdout.split()[-1])
    assert tokens > 35e6  # characters, and twice as many bytes of ids
    assert grown < 40e6  # all texts and ids would need over 100e6
