"""The template of an imported model: language tokens and the unknown token of its tokenizers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import choose
from regard.hub.tokenizer_files import TokenizerFiles
from regard.text.template import Template
from regard.text.tokenizers import Tokenizer

CODES = {  # how the name of a language token contains its code
    "marian": re.compile(r">>(.+)<<"),
    "m2m_100": re.compile(r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})"),
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
}
DEFAULTS = ("en", "eng_Latn", "en_XX")  # the source languages that `transformers` assumes


@dataclass(frozen=True)
class ChosenLanguages:
    """The languages of a multilingual model that a user asks for; None: those of its files."""

    source: str | None = None
    target: str | None = None

    def __bool__(self) -> bool:
        return self.source is not None or self.target is not None


def complete_template(
    template: Template,
    family: str,
    files: TokenizerFiles,
    definition: Mapping[str, Any],
    tokenizer: Tokenizer,
    chosen: ChosenLanguages,
) -> Template:
    """The template with the unknown token, and with language tokens where the model has them.

    `tokenizer` and its definition are those of the source.
    """
    unknown = tokenizer.unknown
    if unknown is None:
        named = {token["content"]: token["id"] for token in definition.get("added_tokens") or []}
        unknown = named.get(files.name("unk_token"), template.end)
    template = replace(template, unknown=unknown)
    languages = find_languages(family, definition, len(tokenizer))
    if not languages:
        if chosen:
            raise files.folder.error(
                "it has no language tokens", "leave out --source-language and --target-language"
            )
        return template
    if family == "marian":
        return _marian(template, languages, chosen)
    return _multilingual(template, languages, files, chosen)


def find_languages(family: str, definition: Mapping[str, Any], size: int) -> dict[str, int]:
    """The language codes of a tokenizer and their ids."""
    pattern, found = CODES.get(family), {}
    for token in definition.get("added_tokens") or []:
        match = pattern and pattern.fullmatch(token["content"])
        if match and token["id"] < size:
            found[next(filter(None, match.groups()))] = token["id"]
    return found


def _marian(template: Template, languages: dict[str, int], chosen: ChosenLanguages) -> Template:
    """Multilingual OPUS-MT: the target language is named before the source, in the text unless it
    is chosen here."""
    if chosen.target is None:
        return template
    code = choose(languages, chosen.target, "target language")
    return replace(template, source_prefix=(code,), languages=languages)


def _multilingual(
    template: Template, languages: dict[str, int], files: TokenizerFiles, chosen: ChosenLanguages
) -> Template:
    """mBART, M2M100 and NLLB: a token for each side."""
    codes = {id: code for code, id in languages.items()}
    first = template.start[0]
    given = [codes[id] for id in template.start if id in codes]
    usual = [code for code in DEFAULTS if code in languages]
    source = _known(files, "src_lang", languages) or next(iter([*usual, *languages]))
    target = next(iter(given), None) or _known(files, "tgt_lang", languages) or source
    before = choose(languages, chosen.source or source, "source language")
    after = choose(languages, chosen.target or target, "target language")
    ends_with_language = files.kind in ("MBartTokenizer", "None") and "en_XX" in languages
    ends_with_language |= files.config.get("legacy_behaviour") is True
    starts_with_language = first in codes or (ends_with_language and not given)
    end = template.end
    return replace(
        template,
        source_prefix=() if ends_with_language else (before,),
        source_suffix=(end, before) if ends_with_language else (end,),
        start=(after,) if starts_with_language else (first, after),
        languages=languages,
    )


def _known(files: TokenizerFiles, name: str, languages: Mapping[str, int]) -> str | None:
    value = files.config.get(name)
    return value if isinstance(value, str) and value in languages else None
