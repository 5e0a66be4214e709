"""Settings: defaults, presets, descriptions, and errors with the dotted path and the fix."""

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
    ("kind", "values", "path", "message"),
    [
        (
            TrainSettings,
            {"learning_ratte": 1},
            "train",
            "unknown setting train.learning_ratte; did you mean 'learning_rate'?",
        ),
        (TrainSettings, {"stepz": 1}, "", "unknown setting stepz; did you mean 'steps'?"),
        (
            TrainSettings,
            {"steps": True},
            "train",
            "train.steps: input should be a number; got True",
        ),
        (
            TrainSettings,
            {"steps": 0},
            "train",
            "train.steps: input should be greater than or equal to 1; got 0",
        ),
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
def test_errors_name_the_dotted_path(kind, values, path, message):
    with pytest.raises(RegardError) as error:
        parse(kind, values, path)
    assert str(error.value) == message


def test_suggestions_are_settings_of_the_family():
    with pytest.raises(RegardError) as error:
        parse(ModelSettings, {"kind": "recurrent", "zzz": 1}, "model")
    assert "'cell'" in str(error.value)
    assert "'heads'" not in str(error.value)


def test_unknown_family_lists_the_known_ones():
    with pytest.raises(RegardError) as error:
        parse(ModelSettings, {"kind": "perceptron"}, "model")
    assert "'transformer', 'recurrent'" in str(error.value)


def test_kind_selects_the_settings_class():
    assert parse(ModelSettings, {"kind": "recurrent", "cell": "lstm"}) == RecurrentSettings(
        cell="lstm"
    )
    assert parse(ModelSettings, {"kind": "transformer", "width": 32}) == TransformerSettings(
        width=32
    )


def test_settings_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        TextSettings().max_tokens = 3


@pytest.mark.parametrize(
    "kind", [TransformerSettings, RecurrentSettings, TextSettings, TrainSettings]
)
def test_every_setting_has_a_one_line_description(kind):
    for name, field in kind.model_fields.items():
        description = field.description or ""
        assert 1 <= len(description) <= 100, f"{name}: {len(description)} characters"
        assert "\n" not in description, name
        assert description.endswith("."), name


@pytest.mark.parametrize(
    ("family", "size"),
    [(family, size) for family in PRESETS for size in ("tiny", "mini", "small", "base", "big")],
)
def test_presets_build_and_grow(family, size):
    sizes = [name for name in PRESETS[family] if name != "student"]
    with torch.device("meta"):
        weights = [
            sum(
                p.numel()
                for p in build(
                    parse(ModelSettings, {"kind": family, **PRESETS[family][name]}), 99, 99
                ).parameters()
            )
            for name in sizes[: sizes.index(size) + 1]
        ]
    assert weights == sorted(weights)
    assert sizes == ["tiny", "mini", "small", "base", "big"]


def test_a_student_is_base_with_two_decoder_layers():
    presets = PRESETS["transformer"]
    assert presets["student"] == {**presets["base"], "decoder_layers": 2}
    assert presets["student"]["encoder_layers"] == 6


def test_read_toml(tmp_path):
    (tmp_path / "my.toml").write_text('[train]\nsteps = 3\n[model]\nkind = "recurrent"\n')
    assert read_toml(tmp_path / "my.toml") == {
        "train": {"steps": 3},
        "model": {"kind": "recurrent"},
    }


def test_invalid_toml_is_reported_with_its_position(tmp_path):
    for content, detail in ((b"a = \n", "line 1, column 5"), (b"a = '\xff'\n", "utf-8")):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(RegardError, match=r"bad\.toml' is not valid TOML: .*" + detail):
            read_toml(tmp_path / "bad.toml")
    with pytest.raises(
        RegardError, match=r"cannot read settings '.*/none\.toml': No such file or directory"
    ):
        read_toml(tmp_path / "none.toml")


def test_deeply_nested_toml_is_an_error(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5_000)
    with pytest.raises(RegardError, match=r"'.*deep.toml' is nested too deeply; write flat values"):
        read_toml(tmp_path / "deep.toml")
