"""Strings made by rule: dates, molecules, expressions, code, names and inflected words."""

import random

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August"]


def names(count: int, seed: int = 1) -> list[str]:
    """Invented lower-case words."""
    draw = random.Random(seed)
    return ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 5))) for _ in range(count)]


def transliterated(count: int) -> list[str]:
    """Names of two words, the first of which recurs."""
    draw = random.Random(2)
    first = [name.title() for name in names(300)]
    weights = [1 / (i + 1) for i in range(len(first))]
    last = [name.title() for name in names(count, 3)]
    return [f"{draw.choices(first, weights)[0]} {name}" for name in last]


def phones(count: int) -> list[str]:
    """Space-separated phones, as of a dictionary."""
    draw = random.Random(4)
    symbols = [a + b for a in ("", "t", "d", "k") for b in ("s", "aː", "o", "ɛ̃", "n")]
    return [" ".join(draw.choices(symbols, k=draw.randint(2, 9))) for _ in range(count)]


def inflection(count: int, order: str) -> list[str]:
    """A word and its features, some of which are numbers."""
    draw = random.Random(5)
    bundles = ["N;NOM;SG", "N;GEN;PL", "N;IN+ABL;SG", "V;PST;3", "V;PRS;1", "V;PRS;2"]
    words = [w.title() if draw.random() < 0.5 else f"{w} zu" for w in names(count)]
    pairs = [(word, draw.choice(bundles)) for word in words]
    return [f"{w} {b}" if order == "last" else f"{b} {w}" for w, b in pairs]


def dates(count: int) -> list[str]:
    """Dates in four formats."""
    draw = random.Random(6)
    lines = []
    for _ in range(count):
        year, month, day = draw.randint(1900, 2099), draw.randint(1, 8), draw.randint(1, 28)
        lines.append(
            draw.choice(
                [
                    f"{day} {MONTHS[month - 1]} {year}",
                    f"{MONTHS[month - 1]} {day}, {year}",
                    f"{year}-{month:02}-{day:02}",
                    f"{day}.{month}.{year}",
                ]
            )
        )
    return lines


def smiles(count: int) -> list[str]:
    """Chains of atoms with branches, rings and charges, written as in SMILES."""
    draw = random.Random(7)
    atoms = ["C", "c1ccccc1", "N", "O", "C(=O)", "[nH]", "Cl", "[N+](=O)[O-]", "[C@@H]", "S", "#N"]
    return ["".join(draw.choices(atoms, k=draw.randint(2, 6))) for _ in range(count)]


def regexes(count: int) -> list[str]:
    """Regular expressions."""
    draw = random.Random(8)
    parts = ["[a-z]+", "[0-9]{2,4}", r"\d*", "(?:ab|cd)?", "^x", r"\s", "[^,;]*", r"\.", "$"]
    return ["".join(draw.choices(parts, k=draw.randint(1, 4))) for _ in range(count)]


def sums(count: int) -> list[str]:
    """Sums of two numbers."""
    draw = random.Random(9)
    return [f"{draw.randint(0, 9999)} + {draw.randint(0, 9999)} =" for _ in range(count)]


def code(count: int) -> list[str]:
    """Assignments, calls and loops with invented names."""
    draw = random.Random(10)
    words = names(3000, 11)
    forms = [
        "{} = {}[{}] + {}({}, {})",
        "for {} in range({}): {}.append({}.{})",
        "if {} != {}: return {}['{}']",
        "def {}({}, {}=None, *{}):",
    ]
    return [draw.choice(forms).format(*draw.choices(words, k=6)) for _ in range(count)]
