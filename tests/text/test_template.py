"""Templates: validation, JSON, and the language tokens of multilingual models."""

import json
import pickle

import pytest

from regard.text import DEFAULT_TEMPLATE, Template, TemplateError
from regard.text.tokenizers import BEGIN, END, UNKNOWN

NLLB = Template(
    unknown=3,
    end=2,
    start=(2, 12),
    source_prefix=(11,),
    source_suffix=(2,),
    banned=(1,),
    languages={"eng": 11, "deu": 12, "fra": 13},
)
MBART = Template(
    end=2, start=(12,), source_suffix=(2, 11), languages={"en_XX": 11, "de_DE": 12, "fr_XX": 13}
)
OPUS = Template(end=0, start=(9,), source_prefix=(5,), source_suffix=(0,), languages={">>fra<<": 6})


def test_default_has_regards_own_ids():
    assert (DEFAULT_TEMPLATE.unknown, DEFAULT_TEMPLATE.start) == (UNKNOWN, (BEGIN,))
    assert (DEFAULT_TEMPLATE.end, DEFAULT_TEMPLATE.source_suffix) == (END, (END,))
    assert DEFAULT_TEMPLATE.source([7, 8]) == [7, 8, 2]
    assert DEFAULT_TEMPLATE.decoder_input([7, 8]) == [1, 7, 8]
    assert DEFAULT_TEMPLATE.labels([7, 8]) == [7, 8, 2]


def test_tokens_of_a_multilingual_model():
    assert NLLB.source([7, 8]) == [11, 7, 8, 2]
    assert NLLB.decoder_input([7]) == [2, 12, 7]
    assert NLLB.source_tokens == 2


@pytest.mark.parametrize("template", [DEFAULT_TEMPLATE, NLLB, MBART, OPUS])
def test_json_round_trip(template):
    assert Template.from_json(json.loads(json.dumps(template.to_json()))) == template
    assert pickle.loads(pickle.dumps(template)) == template
    assert hash(template) == hash(Template.from_json(template.to_json()))


def test_languages_replace_only_their_tokens():
    changed = NLLB.for_languages("fra", "eng")
    assert (changed.source_prefix, changed.source_suffix) == ((13,), (2,))
    assert changed.start == (2, 11)
    assert changed.for_languages("eng", "deu") == NLLB
    assert NLLB.for_languages(target="fra").source_prefix == (11,)
    assert NLLB.for_languages() is NLLB
    changed = MBART.for_languages("fr_XX", "en_XX")
    assert (changed.source_suffix, changed.start) == ((2, 13), (11,))


def test_a_source_token_may_name_the_target_language():
    opus = Template(source_prefix=(5,), languages={">>deu<<": 5, ">>fra<<": 6})
    assert opus.for_languages(target=">>fra<<").source_prefix == (6,)
    with pytest.raises(TemplateError, match=r"no token for the source language; leave out source_"):
        opus.for_languages(source=">>fra<<")


def test_unknown_languages_list_the_known_ones():
    with pytest.raises(
        TemplateError, match=r"^unknown target language 'de'; choose from eng, deu, fra$"
    ):
        NLLB.for_languages("eng", "de")
    with pytest.raises(TemplateError, match=r"no token for the target language; leave out target_"):
        DEFAULT_TEMPLATE.for_languages(target="deu")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "the template is not a JSON object"),
        ({"ends": 3}, "unknown template field 'ends'; did you mean 'end'"),
        ({"end": "2"}, "end of a template must be a token id; got '2'"),
        ({"end": True}, "end of a template must be a token id; got True"),
        ({"unknown": -1}, "unknown of a template must be a token id; got -1"),
        ({"start": []}, "start of a template is empty"),
        ({"start": 1}, "start of a template must be a list of ids; got 1"),
        ({"source_prefix": [1.5]}, "source_prefix of a template must be a token id; got 1.5"),
        ({"source_suffix": [1 << 40]}, "source_suffix of a template must be a token id"),
        ({"start": [1] * 65}, "start of a template has 65 ids; at most 64 fit"),
        ({"end": 4, "banned": [3, 4]}, "cannot ban its end token 4"),
        ({"languages": [4]}, "languages of a template must be an object"),
        ({"languages": {"": 4}}, "a language code must be a non-empty string"),
        ({"languages": {"en": None}}, "language 'en' of a template must be a token id; got None"),
    ],
)
def test_invalid_templates_are_refused(values, reason):
    with pytest.raises(TemplateError, match=reason):
        Template.from_json(values)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (Template(end=9, source_suffix=(2,)), "end of the template has id 9, outside .* of 8"),
        (Template(source_suffix=(2, 6)), "source_suffix of the template has id 6, .* of 6"),
        (Template(start=(1, 8)), "start of the template has id 8"),
        (Template(banned=(0, 1, 3, 4, 5, 6, 7)), "bans every token except the end"),
    ],
)
def test_ids_must_be_in_the_vocabulary(template, reason):
    template.check_sizes(10, 10)
    with pytest.raises(TemplateError, match=reason):
        template.check_sizes(6, 8)
