"""Hostile bundles with right checksums end in one short line, in Python and in both engines."""

import json
import os
import random
import subprocess
import sys

import pytest
import torch

import regard
from benchmarks import bundle_mutations as mutations
from regard.bundle import BundleError, load, read
from regard.cli import main
from regard.config import RecurrentSettings, TransformerSettings
from regard.errors import RegardError
from regard.explore.model_store import ModelStore
from regard.models import build
from regard.models.meta_model import build_on_meta, build_shallow, repeat_layers
from regard.native.gate import POSITION_OPTIONS
from tests.bundle import hostile
from tests.bundle.hostile import (
    CARD,
    CONFIG,
    SOURCE,
    WEIGHTS,
    card,
    entry,
    header,
    model,
    put,
    raw,
    tokenizer,
)
from tests.native_build import require_native_engine

DEEP = f"{mutations.RAW}{'[' * 500}{']' * 500}"
NAN, HUGE = f"{mutations.RAW}NaN", f"{mutations.RAW}1e999"
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}

CASES = {
    # config.json
    "width": (model(width=1 << 40), "model.width: input should be less than or equal to 65536"),
    "wrong width": (model(width=1 << 14), "has shape"),
    "heads": (model(heads=1 << 30), "model.heads: input should be less than"),
    "no heads": (model(heads=0), "model.heads: input should be greater than"),
    "head size": (model(dim=1 << 40), "model.dim: input should be less than"),
    "kv heads": (model(kv_heads=-1), "model.kv_heads: input should be greater than"),
    "layers": (model(encoder_layers=10**9), "model.encoder_layers: input should be less than"),
    "many layers": (model(decoder_layers=1000), "tensor 'decoder.1..* is missing"),
    "ffn": (model(ffn_width=1 << 50), "model.ffn_width: input should be less than"),
    "window": (model(window=1 << 60), "model.window: input should be less than"),
    "window type": (model(window=1.5), "model.window: "),
    "eps": (model(norm_eps=1e308), "model.norm_eps: input should be less than"),
    "scale": (model(embedding_scale=1e308), "model.embedding_scale: input should be less"),
    "boolean": (model(width=True), "model.width"),
    "list": (model(width=[8]), "model.width: input should be a valid integer"),
    "setting name": (model(**{"a\nb": 1}), "unknown setting model.a b"),
    "kind": (model(kind=["transformer"]), "model"),
    "backend": (model(attention_backend="x" * 100_000), "unknown backend"),
    "nan": (model(dropout=NAN), "it has the number NaN"),
    "infinite": (model(dropout=HUGE), "it has the number 1e999"),
    "digits": (model(width=f"{mutations.RAW}{'9' * 5000}"), "it has the number 999"),
    "deep": (model(position=DEEP), "nested more than 64 levels"),
    "deeper": (raw(CONFIG, lambda _: b"[" * 10**6), "it is not valid JSON"),
    "twice": (model(position=f'{mutations.RAW}{{"a": 1, "a": 2}}'), "'a' occurs twice"),
    "surrogate": (model(position="\ud800"), "half a surrogate pair"),
    "not UTF-8": (raw(CONFIG, lambda data: data + b"\xff"), "it is not valid JSON"),
    "size": (raw(CONFIG, lambda data: data + b" " * (1 << 22)), "at most 4,194,304 are read"),
    "vocabulary": (put(CONFIG, "vocabulary", "source", value=1 << 30), "vocabulary sizes are"),
    "vocabulary type": (put(CONFIG, "vocabulary", "source", value="9"), "vocabulary sizes are"),
    "shared": (put(CONFIG, "shared", value=[]), "its 'shared' is"),
    "template": (put(CONFIG, "template", "start", value=[0] * 999), "at most 64 fit"),
    "learned": (model(position={"kind": "learned", "max_length": 1 << 40}), "max_length"),
    "learned text": (model(position={"kind": "learned", "max_length": "8"}), "max_length"),
    "t5 distance": (model(position={"kind": "t5", "max_distance": 10**12}), "max_distance"),
    "t5 buckets": (model(position={"kind": "t5", "buckets": 10**9}), "buckets"),
    "shaw": (model(position={"kind": "shaw", "max_distance": 1e9}), "max_distance"),
    "base": (model(position={"kind": "rotary", "base": 0}), "base"),
    "fraction": (model(position={"kind": "rotary", "fraction": "0.5"}), "fraction"),
    "factor": (model(position={"kind": "rotary", "scaling": "ntk", "factor": 1e200}), "factor"),
    "score option": (model(score={"kind": "cosine", "scale": "x"}), "scale of 'cosine' must be"),
    "part kind": (model(score={"kind": []}), "unknown score"),
    # card.json
    "longest": (card(longest={"target": "x"}), "its 'longest' must be"),
    "longest list": (card(longest=[]), "its 'longest' must be"),
    "ratio": (card(longest={"ratio": 1e300}), "its 'longest' must be"),
    "metrics": (card(metrics=True), "its 'metrics' must be an object"),
    "intervals": (card(intervals={"chrf": [1]}), "its 'intervals' must be"),
    "precision": (card(precision=["int8"]), "its 'precision' must be"),
    "command": (card(command=None), "its 'command' must be a list of texts"),
    "seconds": (card(seconds={}), "its 'seconds' must be a number"),
    "held out": (card(held_out=[[]]), "its 'held_out' must be a count"),
    "title": (card(title="x" * 100_000), "its 'title' must be a text"),
    # weights
    "tensor name": (header(lambda h: h.update(x=h.pop(min(h)))), "is missing"),
    "overlap": (header(lambda h: h[sorted(h)[0]].update(h[sorted(h)[1]])), "overlap|no tensor"),
    "offsets": (entry(data_offsets=[0, 1 << 60]), "lies outside the file"),
    "negative": (entry(data_offsets=[-8, 0]), "lies outside the file"),
    "shape": (entry(shape=[1 << 40, 1 << 40]), "which do not fit its shape"),
    "rank": (entry(shape=[1] * 100), "has an invalid shape"),
    "shape type": (entry(shape="8"), "has an invalid shape"),
    "type": (entry(dtype="F8_E4M3"), "has type 'F8_E4M3'"),
    "type of type": (entry(dtype=[]), r"has type \[\]"),
    "no dtype": (header(lambda h: h[min(h)].pop("dtype")), "has no dtype, shape"),
    "entry": (header(lambda h: h.update({min(h): 3})), "has no dtype, shape"),
    "metadata": (header(lambda h: h.update(__metadata__={"a": [1]})), "its metadata are not"),
    "long name": (header(lambda h: h.update({"x" * 10**5: {}})), "has 100,000 characters"),
    "many tensors": (
        header(lambda h: h.update({f"{i:x}": 0 for i in range(40_000)})),
        "at most 32,768 are read",
    ),
    "header length": (raw(WEIGHTS, lambda data: b"\xff" * 8 + data[8:]), "longer than the file"),
    "long header": (
        raw(WEIGHTS, lambda data: (1 << 23).to_bytes(8, "little") + b" " * (1 << 23)),
        "at most 4,194,304 are read",
    ),
    "header twice": (
        raw(WEIGHTS, lambda data: (13).to_bytes(8, "little") + b'{"a":0,"a":0}'),
        "'a' occurs twice",
    ),
    "empty": (raw(WEIGHTS, lambda _: b""), "longer than the file"),
    "extra bytes": (raw(WEIGHTS, lambda data: data + b"x"), "1 bytes of no tensor at its end"),
    # tokenizers
    "id": (put(SOURCE, "model", "vocab", "a", value=(1 << 31) - 1), "have ids up to 2,147,483,647"),
    "id twice": (put(SOURCE, "model", "vocab", "a", value=0), "ids with gaps or twice|is not a"),
    "suffix": (put(SOURCE, "model", "end_of_word_suffix", value="x"), "has end_of_word_suffix"),
    "backtracking": (
        tokenizer(pre_tokenizer={**SPLIT, "pattern": {"Regex": "(a+)+$"}}),
        "repeats a group",
    ),
    "hidden name": (
        raw(SOURCE, lambda data: data.replace(b'"pre_tokenizer": null',
            b'"pre_tokenizer": {"type": "Split", "pattern": {"\\u0052egex": "(a+)+$"}, '
            b'"behavior": "Isolated", "invert": false}')),
        "repeats a group",
    ),
    "growth": (
        tokenizer(normalizer={"type": "Sequence", "normalizers": [GROWING] * 9}),
        "over 256 times as long",
    ),
    "steps": (
        tokenizer(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 500}),
        "has 500 steps; at most 64",
    ),
    "splitter": (
        tokenizer(
            pre_tokenizer={
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        ),
        "splits texts in another way than Regard does",
    ),
    "charsmap": (
        tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "AA"}),
        "precompiled_charsmap is damaged",
    ),
    "piece length": (
        tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "into pieces of length 0",
    ),
    "tokenizer size": (raw(SOURCE, lambda data: data + b" " * (1 << 26)), "at most 67,108,864"),
    "tokenizer text": (put(SOURCE, "model", "dropout", value="x" * 10**5), "invalid type"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def engine():
    require_native_engine()


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folders = mutations.build_originals(tmp_path_factory.mktemp("originals"))
    return {home.name: mutations.read_files(home) for home in folders}


def one_line(error: RegardError) -> str:
    message = str(error)
    assert "\n" not in message
    assert len(message) <= mutations.LONGEST_MESSAGE
    return message


@pytest.mark.parametrize("case", CASES)
def test_hostile_file_is_refused_in_one_line(case, originals, tmp_path):
    change, reason = CASES[case]
    home = hostile.make(tmp_path / "bad", originals["rotary"], change)
    with pytest.raises(RegardError, match=reason) as caught:
        load(home)
    one_line(caught.value)
    assert mutations.use_bundle(home, "native") != "loaded"
    with pytest.raises(RegardError) as caught:
        ModelStore.open([home])
    one_line(caught.value)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_originals_can_be_used(engine, originals, tmp_path):
    for name, files in originals.items():
        home = hostile.make(tmp_path / name, files, lambda _: None)
        used = mutations.use_bundle(home, engine)
        assert used == "loaded" or (name == "int8" and engine == "torch" and "int8" in used)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_random_changes_load_or_end_in_one_line(engine, originals, tmp_path):
    outcomes = []
    for seed in range(200):
        chance = random.Random(seed)
        files, _ = mutations.mutate(chance.choice([*originals.values()]), chance)
        mutations.write_bundle(tmp_path / "bad", files)
        outcomes.append(mutations.use_bundle(tmp_path / "bad", engine))
    loaded = outcomes.count("loaded")
    assert 10 < loaded < 150


REPLACEMENTS = {
    "a link": hostile.replace_by_link,
    "a pipe": hostile.replace_by_pipe,
    "a socket": hostile.replace_by_socket,
    "a folder": hostile.replace_by_folder,
}


@pytest.mark.parametrize("kind", REPLACEMENTS)
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, CARD, SOURCE, "manifest.json"])
def test_only_regular_files_are_read(kind, name, originals, tmp_path):
    home = hostile.make(tmp_path / "bad", originals["rotary"], lambda _: None)
    REPLACEMENTS[kind](home / name)
    with pytest.raises(BundleError, match=f"{name}' is {kind}; a bundle has regular files only"):
        read(home)


def test_a_link_to_a_device_is_refused(originals, tmp_path):
    home = hostile.make(tmp_path / "bad", originals["rotary"], lambda _: None)
    (home / WEIGHTS).unlink()
    (home / WEIGHTS).symlink_to("/dev/zero")
    with pytest.raises(BundleError, match="is a link; a bundle has regular files only"):
        read(home)


def test_the_folder_itself_may_be_a_link(originals, tmp_path):
    home = hostile.make(tmp_path / "good", originals["rotary"], lambda _: None)
    (tmp_path / "link").symlink_to(home)
    assert len(read(tmp_path / "link").source)


def test_a_sparse_file_of_weights_is_not_read(originals, tmp_path):
    home = hostile.make(tmp_path / "bad", originals["rotary"], lambda _: None)
    os.truncate(home / WEIGHTS, 1 << 40)
    manifest = (home / "manifest.json").read_text()
    size = len(originals["rotary"][WEIGHTS])
    (home / "manifest.json").write_text(manifest.replace(f'"bytes": {size}', f'"bytes": {1 << 40}'))
    with pytest.raises(BundleError, match="bytes of no tensor at its end"):
        read(home)


def test_int8_vectors_are_refused(originals, tmp_path):
    """A vector times a column of scales would be a matrix of the square of its size."""

    def quantise(document):
        name = next(one for one in document if one.endswith("norm.bias"))
        size = document[name]["shape"][0]
        document[name].update(dtype="I8", shape=[4 * size])

    home = hostile.make(tmp_path / "bad", originals["rotary"], header(quantise))
    with pytest.raises(BundleError, match=r"has shape|its types are"):
        load(home)


def test_training_sources_are_checked(originals, tmp_path):
    home = hostile.make(tmp_path / "bad", originals["rotary"], lambda _: None)
    (home / "training_sources.safetensors").symlink_to(home / WEIGHTS)
    with pytest.raises(BundleError, match="it has no hashes"):
        assert read(home).training_sources


def test_ensembles_list_a_few_members(originals, tmp_path):
    member = json.loads(originals["rotary"][CONFIG])["model"]
    odd = (3, [], [3], [member], [member] * 65, [member, {**member, "width": "wide"}])
    for number, members in enumerate(odd):
        settings = {"kind": "ensemble", "members": members}
        change = hostile.put(CONFIG, "model", value=settings)
        home = hostile.make(tmp_path / str(number), originals["rotary"], change)
        for use in (regard.load, lambda home: ModelStore.open([home])):
            with pytest.raises(RegardError) as caught:
                use(home)
            one_line(caught.value)
    settings = {"kind": "ensemble", "members": [member, member]}  # whose weights are not there
    wrong = hostile.put(CONFIG, "model", value=settings)
    with pytest.raises(BundleError, match=r"is missing|belongs to another model"):
        load(hostile.make(tmp_path / "wrong", originals["rotary"], wrong))


def test_explore_validates_before_it_starts(originals, tmp_path, capsys):
    home = hostile.make(tmp_path / "bad", originals["rotary"], model(width=16))
    with pytest.raises(SystemExit) as caught:
        main(["explore", str(home), "--no-browser", "--port", "0"])
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1


def test_hostile_settings_are_refused_without_torch(originals, tmp_path):
    for number, case in enumerate(("width", "learned", "t5 distance", "longest", "offsets")):
        hostile.make(tmp_path / str(number), originals["rotary"], CASES[case][0])
    script = """
import sys
sys.modules["torch"] = None  # importing it raises
import regard
from regard.errors import RegardError
for number in range(5):
    try:
        regard.load(f"{sys.argv[1]}/{number}", device="cpu", engine="native")
        print("loaded")
    except RegardError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
    assert "loaded" not in done.stdout


def test_checking_shapes_allocates_no_memory():
    huge = TransformerSettings(width=1 << 16, heads=8, encoder_layers=1, decoder_layers=1)
    found = build_on_meta(huge, 1 << 22, 1 << 22)
    assert all(parameter.is_meta for parameter in found.parameters())


DEPTH = {"encoder_layers": 4, "decoder_layers": 3, "width": 8}
MODELS = [
    *(TransformerSettings(**DEPTH, heads=2, position=one) for one in POSITION_OPTIONS),
    *(TransformerSettings(**DEPTH, heads=2, score=one) for one in ("general", "additive")),
    TransformerSettings(**DEPTH, heads=2, norm="rms", tie_embeddings="all", output_bias=True),
    *(RecurrentSettings(**DEPTH, cell=cell, score="general") for cell in ("gru", "lstm")),
]


@pytest.mark.parametrize("settings", MODELS, ids=lambda one: f"{one.kind}-{one.score}")
def test_shapes_on_meta_are_those_of_the_model(settings):
    model = build(settings, 9, 9)
    expected = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    for build_shapes in (build_on_meta, build_shallow):
        found = build_shapes(settings, 9, 9).state_dict()
        named = {name: tuple(one.shape) for name, one in found.items()}
        if build_shapes is build_shallow:
            named = repeat_layers(named, settings)
        assert {name: named.get(name) for name in expected} == expected


def test_checking_shapes_keeps_the_random_state():
    state = torch.random.get_rng_state()
    build_on_meta(RecurrentSettings(width=8), 9, 9)
    assert torch.equal(torch.random.get_rng_state(), state)
