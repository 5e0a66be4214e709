"""Settings: what is wrong is said in one line, by its dotted path, with the way out."""

import pytest
import torch
from pydantic import ValidationError

from regard.config import (
    PRESETS,
    ModelSettings,
    RecurrentSettings,
    TextSettings,
    TrainSettings,
    TransformerSettings,
    parse,
    read_toml,
)
from regard.errors import RegardError
from regard.models import build


@pytest.mark.parametrize(
    ("kind", "values", "path", "said"),
    [
        (
            TrainSettings,
            {"learning_ratte": 1},
            "train",
            "unknown setting train.learning_ratte; did you mean 'learning_rate'?",
        ),
        (TrainSettings, {"stepz": 1}, "", "unknown setting stepz; did you mean 'steps'?"),
        (TrainSettings, {"steps": True}, "train", "train.steps: input should be a number; got True"),
        (TrainSettings, {"steps": 0}, "train", "train.steps: input should be greater than or equal to 1; got 0"),
        (
            TrainSettings,
            {"minutes": "x"},
            "",
            "minutes: input should be a valid number, unable to parse string as a number; got 'x'",
        ),
        (
            TrainSettings,
            {"weight_average": "mean"},
            "train",
            "train.weight_average: input should be 'none', 'ema' or 'last'; got 'mean'",
        ),
        (
            TrainSettings,
            {"gradient_accumulation": 3},
            "train",
            "train.gradient_accumulation: input should be 1, 2, 4, 8, 16 or 32; got 3",
        ),
        (
            ModelSettings,
            {"kind": "transformer", "widht": 8},
            "model",
            "unknown setting model.widht; did you mean 'width'?",
        ),
        (
            ModelSettings,
            {"kind": "recurrent", "cel": "gru"},
            "model",
            "unknown setting model.cel; did you mean 'cell'?",
        ),
        (
            ModelSettings,
            {"kind": "recurrent", "width": 7},
            "model",
            "model.width: input should be a multiple of 2; got 7",
        ),
        (
            ModelSettings,
            {"kind": "transformer", "dropout": 1},
            "model",
            "model.dropout: input should be less than 1; got 1",
        ),
    ],
)
def test_what_is_wrong_is_said_by_its_path(kind, values, path, said):
    with pytest.raises(RegardError) as refused:
        parse(kind, values, path)
    assert str(refused.value) == said


def test_only_settings_of_the_model_at_hand_are_suggested():
    with pytest.raises(RegardError) as refused:
        parse(ModelSettings, {"kind": "recurrent", "zzz": 1}, "model")
    assert "'cell'" in str(refused.value)
    assert "'heads'" not in str(refused.value)


def test_an_unknown_kind_of_model_is_refused_and_the_known_are_named():
    with pytest.raises(RegardError) as refused:
        parse(ModelSettings, {"kind": "perceptron"}, "model")
    assert "'transformer', 'recurrent'" in str(refused.value)


def test_the_kind_tells_which_settings_they_are():
    assert parse(ModelSettings, {"kind": "recurrent", "cell": "lstm"}) == RecurrentSettings(cell="lstm")
    assert parse(ModelSettings, {"kind": "transformer", "width": 32}) == TransformerSettings(width=32)


def test_settings_do_not_change_after_they_are_made():
    with pytest.raises(ValidationError, match="frozen"):
        TextSettings().limit = 3


@pytest.mark.parametrize("kind", [TransformerSettings, RecurrentSettings, TextSettings, TrainSettings])
def test_every_setting_is_explained_where_it_is(kind):
    assert [name for name, field in kind.model_fields.items() if not field.description and name != "kind"] == []


@pytest.mark.parametrize(("family", "size"), [(family, size) for family, sizes in PRESETS.items() for size in sizes])
def test_presets_can_be_built_and_grow(family, size):
    sizes = list(PRESETS[family])
    with torch.device("meta"):
        weights = [
            sum(
                p.numel()
                for p in build(parse(ModelSettings, {"kind": family, **PRESETS[family][name]}), 99, 99).parameters()
            )
            for name in sizes[: sizes.index(size) + 1]
        ]
    assert weights == sorted(weights)
    assert sizes == ["tiny", "small", "base", "big"]


def test_a_toml_file_becomes_values(tmp_path):
    (tmp_path / "my.toml").write_text('[train]\nsteps = 3\n[model]\nkind = "recurrent"\n')
    assert read_toml(tmp_path / "my.toml") == {"train": {"steps": 3}, "model": {"kind": "recurrent"}}


def test_a_file_that_is_no_toml_is_named_with_the_place(tmp_path):
    for content, said in ((b"a = \n", "line 1, column 5"), (b"a = '\xff'\n", "utf-8")):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(RegardError, match=r"bad\.toml' is no TOML: .*" + said):
            read_toml(tmp_path / "bad.toml")
    with pytest.raises(RegardError, match=r"cannot read settings '.*/none\.toml': No such file or directory"):
        read_toml(tmp_path / "none.toml")
