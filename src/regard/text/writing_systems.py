"""Scripts of characters, and the letters of languages in each legacy encoding."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

# Letters of each language beyond ASCII: the common ones, then the rare ones; those of other scripts
# in the order of their frequency.
WESTERN = {
    "Swedish or Finnish": ("åäöé", "èàüæøšž"),
    "Danish or Norwegian": ("æøåé", "òôèöäü"),
    "German": ("äöüß", "éàèçñ"),
    "French": ("éèàêçôùûîâ", "ëïœæÿü"),
    "Spanish": ("áéíóúñ", "üç"),
    "Portuguese": ("áâãàçéêíóôõú", "üè"),
    "Italian": ("àèéìòù", "íîóú"),
    "Dutch": ("éëïèöü", "áóêçñûîâôä"),
    "Icelandic": ("áéíóúýðþæö", ""),
    "Catalan": ("àçèéíòóú", "ïü"),
    "Estonian": ("äöõü", "šžé"),
}
CENTRAL = {
    "Polish": ("ąćęłńóśźż", "éöü"),
    "Czech": ("áčéěířšůýž", "ďňóťú"),
    "Slovak": ("áčéíšýž", "äďĺľňóôŕťú"),
    "Hungarian": ("áéíóöőúüű", ""),
    "Romanian": ("ăâîşţ", ""),
    "Croatian or Slovenian": ("čćđšž", ""),
}
CYRILLIC = {
    "Russian": ("оеаинтсрл", "вкмдпуяыьгзбчйхжшюцщэфъё"),
    "Ukrainian": ("оаниіетрс", "влкмдпуязьбгйчхцшюжїєщфґ"),
    "Serbian": ("аиоенрсјт", "укдвлмпгзбчцћхшђжљњфџ"),
}
GREEK = {"Greek": ("αοιετσνηυρπκλς", "μωάίόέγδήθύώβχφξζψϊϋΐΰ")}
TURKISH = {"Turkish": ("çğışöü", "âîûi\u0307")}
BALTIC = {"Lithuanian": ("ąčęėįšųūž", ""), "Latvian": ("āčēģīķļņšūž", "")}
ENCODING_LANGUAGES: dict[str, dict[str, tuple[str, str]]] = {  # equal guesses: the first one wins
    "cp1252": WESTERN,
    "mac_roman": WESTERN,
    "cp1250": CENTRAL,
    "iso8859_2": CENTRAL,
    "mac_latin2": CENTRAL,
    "cp1251": CYRILLIC,
    "koi8_r": CYRILLIC,
    "mac_cyrillic": CYRILLIC,
    "cp866": CYRILLIC,
    "cp1253": GREEK,
    "cp1254": TURKISH,
    "cp1257": BALTIC,
    "cp850": WESTERN,
}

# Unicode names begin with the script, except those of these blocks.
SCRIPT_NAMES = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "MODIFIER": "Latin"}


@cache
def script_of(character: str) -> str:
    """The script of a letter, such as "Latin" or "Greek"; empty for other characters."""
    if not character.isalpha():
        return ""
    first = unicodedata.name(character, "UNKNOWN").split()[0]
    return SCRIPT_NAMES.get(first, first.capitalize())


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """The number of letters of each script."""
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if script := script_of(character):
            scripts[script] += count
    return scripts
