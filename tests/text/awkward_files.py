"""Awkward files of pairs as users have them, each with the pairs or the error to expect.

`CASES` maps a name to an `AwkwardFile`. The contents are built here, by hand or with libraries that
Regard does not use for reading.
"""

import csv
import datetime
import gzip
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

Rows = Sequence[Sequence[Any]]

WORDS = [
    ("hafva", "hava"),
    ("äfven", "även"),
    ("öfver", "över"),
    ("blifva", "bliva"),
    ("hvilken", "vilken"),
    ("qvinna", "kvinna"),
    ("ålder", "ålder"),
    ("lefva", "leva"),
    ("godt", "gott"),
    ("skrifva", "skriva"),
]
SENTENCES = [
    ("Hi, Tom.", "Hallo, Tom."),
    ('She said "go".', "Sie sagte: „Geh“."),
    ("It is late; we go.", "Es ist spät; wir gehen."),
    ("Who is it?", "Wer ist es?"),
]
PHONES = [
    ("CAT", "K AE T"),
    ("TACK", "T AE K"),
    ("ACT", "AE K T"),
    ("AT", "AE T"),
    ("TAKE", "T EY K"),
    ("CAKE", "K EY K"),
    ("ATE", "EY T"),
    ("KATE", "K EY T"),
    ("TACT", "T AE K T"),
    ("KEY", "K IY"),
    ("TEA", "T IY"),
    ("EAT", "IY T"),
]
RUSSIAN = [("привет", "privet"), ("дом", "dom"), ("кошка", "koshka"), ("собака", "sobaka")]
POLISH = [("źdźbło", "zdzblo"), ("łąka", "laka"), ("żółw", "zolw"), ("święto", "swieto")]
JAPANESE = [("日本語", "にほんご"), ("東京", "とうきょう"), ("猫", "ねこ"), ("学校", "がっこう")]


@dataclass(frozen=True)
class AwkwardFile:
    """The name and content of a file, how to read it, and what to expect: pairs or an error.

    `error` is a part of the one-line message, which must name the fix.
    """

    file: str
    content: bytes
    pairs: Sequence[tuple[str, str]] = ()
    error: str = ""
    options: dict[str, Any] = field(default_factory=dict)


def text(rows: Rows, delimiter: str = ";", end: str = "\n", **options: Any) -> str:
    """Rows as CSV text."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end, **options).writerows(rows)
    return out.getvalue()


def tabs(rows: Rows) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def headed(*names: str, rows: Rows = WORDS) -> bytes:
    return text([names, *rows]).encode()


def excel(sheets: dict[str, Rows]) -> bytes:
    """A workbook written by openpyxl, as by Excel."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def google_excel(rows: Rows) -> bytes:
    """A minimal workbook with inline strings, as web applications write it."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    kinds = "http://schemas.openxmlformats.org/package/2006/content-types"
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    cells = "".join(
        "<row>"
        + "".join(f'<c t="inlineStr"><is><t>{escape(str(cell))}</t></is></c>' for cell in row)
        + "</row>"
        for row in rows
    )
    sheet_type = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{kinds}">'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{sheet_type}.sheet.main+xml"/>'
            f'<Override PartName="/xl/s1.xml" ContentType="{sheet_type}.worksheet+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" '
            f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets>'
            '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}">'
            f'<Relationship Id="r1" Type="{office}/worksheet" Target="s1.xml"/></Relationships>',
            "xl/s1.xml": f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>",
        }
    )


def open_document(rows: Rows) -> bytes:
    """An .ods file with the repeated empty rows that LibreOffice adds."""
    names = {
        name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"
        for name in ("office", "table", "text")
    }
    declared = " ".join(f'xmlns:{name}="{address}"' for name, address in names.items())
    body = "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{escape(cell)}</text:p>'
            "</table:table-cell>"
            for cell in row
        )
        + '<table:table-cell table:number-columns-repeated="16000"/></table:table-row>'
        for row in rows
    )
    body += (
        '<table:table-row table:number-rows-repeated="1048000">'
        '<table:table-cell table:number-columns-repeated="16002"/></table:table-row>'
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    return zipped(
        {
            "mimetype": kind,
            "META-INF/manifest.xml": '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:'
            'opendocument:xmlns:manifest:1.0"><manifest:file-entry manifest:full-path="/" '
            f'manifest:media-type="{kind}"/></manifest:manifest>',
            "content.xml": f"<office:document-content {declared}><office:body>"
            f'<office:spreadsheet><table:table table:name="Blad1">{body}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        }
    )


def parquet(columns: dict[str, list[Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def numbered(rows: Rows) -> list[list[Any]]:
    return [[str(n), *row] for n, row in enumerate(rows, 1)]


def five_columns(*names: str) -> bytes:
    rows = [[str(n), s, t, "1732", "ok"] for n, (s, t) in enumerate(WORDS, 1)]
    return text([names, *rows] if names else rows).encode()


HEADERS = {  # no language needs an option
    "Swedish": ("Historisk form", "Modern form"),
    "English": ("Old spelling", "New spelling"),
    "German": ("Altes Wort", "Neues Wort"),
    "French": ("Mot", "Traduction"),
    "Spanish": ("palabra", "traducción"),
    "Italian": ("parola", "traduzione"),
    "Portuguese": ("Palavra", "Tradução"),
    "Dutch": ("Woord", "Vertaling"),
    "Danish": ("Ord", "Oversættelse"),
    "Finnish": ("Sana", "Käännös"),
    "Polish": ("Słowo", "Tłumaczenie"),
    "Czech": ("Slovo", "Překlad"),
    "Russian": ("Слово", "Перевод"),
    "Greek": ("Λέξη", "Μετάφραση"),
    "Turkish": ("Kelime", "Çeviri"),
    "Chinese": ("单词", "翻译"),
    "Japanese": ("単語", "翻訳"),
    "Korean": ("단어", "번역"),
    "Arabic": ("كلمة", "ترجمة"),
    "Hebrew": ("מילה", "תרגום"),
    "languages": ("English", "Svenska"),
    "codes": ("en", "sv"),
    "underscores": ("word_old", "word_new"),
    "unknown words": ("Gamla böcker", "Dagens bruk"),
}
REVERSED_HEADERS = {
    "German": ("Ziel", "Quelle"),
    "French": ("cible", "source"),
    "Swedish": ("mål", "källa"),
    "English": ("target_text", "source_text"),
}

CASES: dict[str, AwkwardFile] = {
    **{
        f"header in {name}": AwkwardFile("a.csv", headed(*names), WORDS)
        for name, names in HEADERS.items()
    },
    **{
        f"reversed columns in {name}": AwkwardFile(
            "a.csv", headed(*names, rows=[(t, s) for s, t in WORDS]), WORDS
        )
        for name, names in REVERSED_HEADERS.items()
    },
    # ---- no header: the first row is data
    "plain pairs": AwkwardFile("a.csv", text(WORDS).encode(), WORDS),
    "capitalised first pair": AwkwardFile(
        "a.csv", text([("Anna", "Anna"), *WORDS]).encode(), [("Anna", "Anna"), *WORDS]
    ),
    "phrase as first pair": AwkwardFile(
        "a.csv", text([("à propos", "apropå"), *WORDS]).encode(), [("à propos", "apropå"), *WORDS]
    ),
    "header word as first pair": AwkwardFile(
        "a.tsv", tabs([("WORD", "W ER D"), *PHONES]), [("WORD", "W ER D"), *PHONES]
    ),
    "same word on both sides": AwkwardFile(
        "a.tsv", tabs([("ord", "ord"), *WORDS]), [("ord", "ord"), *WORDS]
    ),
    "phones": AwkwardFile("a.tsv", tabs(PHONES), PHONES),
    "sentences": AwkwardFile("a.tsv", tabs(SENTENCES), SENTENCES),
    "numbers": AwkwardFile("a.tsv", b"1\tone\n2\ttwo\n3\tthree\n4\tfour\n", [
        ("1", "one"), ("2", "two"), ("3", "three"), ("4", "four")]),
    "two rows": AwkwardFile("a.tsv", b"ja\tyes\nnej\tno\n", [("ja", "yes"), ("nej", "no")]),
    "forced to have no header": AwkwardFile(
        "a.csv", headed("Mot", "Ord"), [("Mot", "Ord"), *WORDS], options={"header": False}
    ),
    "forced to have a header": AwkwardFile(
        "a.csv", text([("gammal", "ny"), *WORDS]).encode(), WORDS, options={"header": True}
    ),
    # ---- header by content
    "header above phones": AwkwardFile("a.tsv", tabs([("ENTRY", "sounds"), *PHONES]), PHONES),
    "header above numbers": AwkwardFile(
        "a.tsv", b"figure\tname of it\n1\tone\n2\ttwo\n3\tthree\n",
        [("1", "one"), ("2", "two"), ("3", "three")],
    ),
    "header in another script": AwkwardFile(
        "a.csv", text([("Ryska", "Latinsk"), *[(s, s[::-1]) for s, _ in RUSSIAN]]).encode(),
        [(s, s[::-1]) for s, _ in RUSSIAN],
    ),
    # ---- columns
    "row numbers": AwkwardFile(
        "a.csv", text(numbered(WORDS)).encode(),
        error="has 3 columns: 1 (1, 2), 2 (hafva, äfven), 3 (hava, även); which are source and "
        "target? Pass for example --source 2 --target 3",
    ),
    "row numbers, with options": AwkwardFile(
        "a.csv", text(numbered(WORDS)).encode(), WORDS, options={"source": 2, "target": 3}
    ),
    "five columns": AwkwardFile(
        "a.csv", five_columns("Nr", "Historisk form", "Modern form", "År", "Not"),
        error="has 5 columns: 1 'Nr' (1, 2), 2 'Historisk form' (hafva, äfven), 3 'Modern form' "
        "(hava, även), 4 'År' (1732), 5 'Not' (ok); which are source and target? Pass for example "
        "--source 2 --target 3",
    ),
    "five columns without a header": AwkwardFile(
        "a.csv", five_columns(), error="which are source and target? Pass for example --source 2"
    ),
    "five columns by name": AwkwardFile(
        "a.csv", five_columns("Nr", "Historisk form", "Modern form", "År", "Not"), WORDS,
        options={"source": "Historisk form", "target": "Modern form"},
    ),
    "five columns with known names": AwkwardFile(
        "a.csv", five_columns("id", "source", "target", "year", "note"), WORDS
    ),
    "source_lang is not the source": AwkwardFile(
        "a.csv",
        text([("source_lang", "source", "target"), *[("sv", *pair) for pair in WORDS]]).encode(),
        WORDS,
    ),
    "index column of pandas": AwkwardFile(
        "a.csv",
        text([("", "source", "target"), *numbered(WORDS)], ",").encode(), WORDS,
    ),
    "empty third column": AwkwardFile(
        "a.csv", text([(s, t, "") for s, t in WORDS]).encode(), WORDS
    ),
    "one column": AwkwardFile(
        "a.txt", "\n".join(s for s, _ in WORDS).encode(), error="seems to have one column"
    ),
    "missing cell": AwkwardFile(
        "a.csv", text([*WORDS, ("sist",), WORDS[0]]).encode(),
        error="a.csv:11: 1 column only, but the target is column 2; fix the line",
    ),
    "extra cell": AwkwardFile(
        "a.csv", text([*WORDS, ("a", "b", "c")]).encode(),
        error="a.csv:11: 3 columns where the file has 2; is a delimiter inside the text?",
    ),
    # ---- quotes
    "all cells quoted by LibreOffice": AwkwardFile(
        "a.csv", text([("Källa", "Mål"), *WORDS], ",", quoting=csv.QUOTE_ALL).encode(), WORDS
    ),
    "delimiters and quotes in cells": AwkwardFile("a.csv", text(SENTENCES).encode(), SENTENCES),
    "commas in cells": AwkwardFile("a.csv", text(SENTENCES, ",").encode(), SENTENCES),
    "space after the delimiter": AwkwardFile(
        "a.csv", b'"a b", "c, d"\n"e", "f"\n"g", "h"\n', [("a b", "c, d"), ("e", "f"), ("g", "h")]
    ),
    "tab inside quotes": AwkwardFile(
        "a.tsv", b'a\t"b\tc"\nd\te\nf\tg\n', [("a", "b\tc"), ("d", "e"), ("f", "g")]
    ),
    "doubled quotes in tab-separated text": AwkwardFile(
        "a.tsv", b'"say ""hi"""\thello\nd\te\n', [('say "hi"', "hello"), ("d", "e")]
    ),
    "quotes of plain tab-separated text": AwkwardFile(
        "a.tsv", b'"Go."\t"Geh."\n"No," he said.\tNein.\n',
        [('"Go."', '"Geh."'), ('"No," he said.', "Nein.")],
    ),
    "line end inside quotes": AwkwardFile(
        "a.csv", b'a,"b\nc"\nd,e\nf,g\n', [("a", "b\nc"), ("d", "e"), ("f", "g")]
    ),
    "quote that is not closed": AwkwardFile(
        "a.csv", b'a,b\nc,d\n"e,f\ng,h\n', error="a.csv:3: a quoted field is not closed"
    ),
    "backslash before a quote": AwkwardFile(
        "a.csv", b'a,b\nc,d\n"e \\" f",g\n', error="a.csv:3: a quote is misplaced"
    ),
    # ---- encodings
    **{
        f"{encoding} of {name}": AwkwardFile("a.csv", text(rows).encode(encoding), rows)
        for name, rows, encodings in (
            ("Swedish", WORDS, ("cp1252", "latin-1", "mac_roman", "utf-16", "utf-8-sig")),
            ("German", SENTENCES, ("cp1252", "utf-32")),
            ("Russian", RUSSIAN, ("cp1251", "koi8_r")),
            ("Polish", POLISH, ("cp1250", "iso8859_2")),
            ("Japanese", JAPANESE, ("cp932", "euc_jp")),
        )
        for encoding in encodings
    },
    "UTF-16 without a mark": AwkwardFile("a.csv", text(WORDS).encode("utf-16-le"), WORDS),
    "compressed Windows-1252": AwkwardFile(
        "a.csv.gz", gzip.compress(text(WORDS).encode("cp1252")), WORDS
    ),
    "encoding given": AwkwardFile(
        "a.csv", text([("þetta", "x"), ("ýsa", "y")]).encode("cp1252"),
        [("þetta", "x"), ("ýsa", "y")], options={"encoding": "cp1252"},
    ),
    "encoding unclear": AwkwardFile(
        "a.csv", text([("þetta", "x"), ("ýsa", "y"), ("það", "z")]).encode("cp1252"),
        error="the encoding is unclear: Windows-1252 reads 'þetta' or Windows-1254 reads 'şetta'; "
        "pass --encoding cp1252 or --encoding cp1254",
    ),
    "mixed encodings": AwkwardFile(
        "a.csv", text(WORDS).encode() + text(WORDS[1:2]).encode("cp1252"),
        error="a.csv:11: byte 1 of the line, 0xE4, is not valid UTF-8; fix the line, name the "
        "--encoding, or skip it with --bad-lines skip",
    ),
    "unknown encoding name": AwkwardFile(
        "a.csv", text(WORDS).encode(), error="unknown --encoding 'cp-1252x'; use for example utf-8",
        options={"encoding": "cp-1252x"},
    ),
    "binary file": AwkwardFile(
        "a.csv", bytes(range(256)) * 4, error="is not a text file: it has zero bytes"
    ),
    # ---- line ends
    "CRLF": AwkwardFile("a.csv", text(WORDS, end="\r\n").encode(), WORDS),
    "bare CR of old Macs": AwkwardFile("a.csv", text(WORDS, end="\r").encode("mac_roman"), WORDS),
    "no newline at the end": AwkwardFile("a.csv", text(WORDS).rstrip().encode(), WORDS),
    "Unicode line separator in a cell": AwkwardFile(
        "a.tsv", "a\u2028b\tc\nd\te\n".encode(), [("a\u2028b", "c"), ("d", "e")]
    ),
    # ---- empty and duplicate rows
    "blank lines above the header": AwkwardFile("a.csv", b"\n\n" + headed("Ord", "Mål"), WORDS),
    "empty rows at the end": AwkwardFile("a.csv", text(WORDS).encode() + b";\n;\n\n", WORDS),
    "empty row in the middle": AwkwardFile(
        "a.csv", text([*WORDS, ("", ""), WORDS[0]]).encode(),
        error="a.csv:11: the line is empty; fix the line, or skip it with --bad-lines skip",
    ),
    "empty row skipped": AwkwardFile(
        "a.csv", text([*WORDS, ("", ""), WORDS[0]]).encode(), [*WORDS, WORDS[0]],
        options={"bad_lines": "skip"},
    ),
    "duplicate rows": AwkwardFile("a.csv", text(WORDS * 2).encode(), WORDS * 2),
    "empty file": AwkwardFile("a.csv", b"", error="a.csv is empty"),
    "header only": AwkwardFile("a.csv", b"source;target\n", error="no pairs in"),
    "empty target": AwkwardFile(
        "a.csv", text([*WORDS, ("x", ""), WORDS[0]]).encode(),
        error="a.csv:11: the target is empty; fix the line",
    ),
    # ---- exports of spreadsheets
    "Excel CSV UTF-8": AwkwardFile(
        "a.csv", text([("Ord", "Form"), *WORDS], end="\r\n").encode("utf-8-sig"), WORDS
    ),
    "Excel CSV with sep=": AwkwardFile(
        "a.csv", b"sep=;\r\n" + text(SENTENCES, end="\r\n").encode("cp1252"), SENTENCES
    ),
    "Excel Unicode text": AwkwardFile(
        "a.txt", text([("Ord", "Form"), *WORDS], "\t", "\r\n").encode("utf-16"), WORDS
    ),
    "Numbers CSV with empty rows and columns": AwkwardFile(
        "a.csv",
        text([("Ord", "Form", "", ""), *[(s, t, "", "") for s, t in WORDS], *[[""] * 4] * 9], ",",
             "\r\n").encode(), WORDS,
    ),
    "Google Sheets TSV": AwkwardFile(
        "a.tsv", text([("Ord", "Form"), *WORDS], "\t", "\r\n").strip().encode(), WORDS
    ),
    # ---- workbooks
    "Excel": AwkwardFile("a.xlsx", excel({"Blad1": [("Ord", "Form"), *WORDS]}), WORDS),
    "Excel without a header": AwkwardFile("a.xlsx", excel({"Blad1": WORDS}), WORDS),
    "Excel with five columns": AwkwardFile(
        "a.xlsx", excel({"Blad1": [("Nr", "Äldre", "Nyare"), *numbered(WORDS)]}),
        error="has 3 columns: 1 'Nr' (1, 2), 2 'Äldre' (hafva, äfven), 3 'Nyare' (hava, även)",
    ),
    "Excel with an empty sheet": AwkwardFile(
        "a.xlsx", excel({"Blad1": WORDS, "Blad2": [], "Blad3": []}), WORDS
    ),
    "Excel with two sheets": AwkwardFile(
        "a.xlsx", excel({"train": WORDS, "test": WORDS[:2]}),
        error="has 2 sheets: 'train', 'test'; pass one, for example --sheet 'train'",
    ),
    "Excel sheet by name": AwkwardFile(
        "a.xlsx", excel({"train": WORDS, "test": WORDS[:4]}), WORDS[:4], options={"sheet": "test"}
    ),
    "Excel of Numbers with a summary": AwkwardFile(
        "a.xlsx",
        excel({"Export Summary": [("This document was exported",)], "Table 1": WORDS}), WORDS,
    ),
    "Excel of Google Sheets": AwkwardFile("a.xlsx", google_excel([("Ord", "Form"), *WORDS]), WORDS),
    "Excel with numbers": AwkwardFile(
        "a.xlsx", excel({"A": [("Number", "Word"), (1, "one"), (2.0, "two"), (2.5, "half")]}),
        [("1", "one"), ("2", "two"), ("2.5", "half")],
    ),
    "Excel that made a date": AwkwardFile(
        "a.xlsx", excel({"A": [*WORDS, ("mars", datetime.date(2024, 3, 1))]}),
        error="a.xlsx:11: the target is a date or time (2024-03-01), not text; format the column "
        "as text; fix the line",
    ),
    "Excel with empty rows": AwkwardFile(
        "a.xlsx", excel({"A": [("Ord", "Form"), *WORDS[:5], (), (), *WORDS[5:]]}), WORDS
    ),
    "Excel named .csv": AwkwardFile("a.csv", excel({"A": WORDS}), WORDS),
    "CSV named .xlsx": AwkwardFile(
        "a.xlsx", text(WORDS).encode(), error="cannot be read as a workbook"
    ),
    "OpenDocument": AwkwardFile("a.ods", open_document([("Ord", "Form"), *WORDS]), WORDS),
    "Parquet": AwkwardFile(
        "a.parquet", parquet({"x": [s for s, _ in WORDS], "y": [t for _, t in WORDS]}), WORDS
    ),
    "Parquet with known names": AwkwardFile(
        "a.parquet",
        parquet({"id": [1, 2], "target": ["hava", "även"], "source": ["hafva", "äfven"]}),
        [("hafva", "hava"), ("äfven", "även")],
    ),
    "damaged Parquet": AwkwardFile(
        "a.parquet", b"PAR1 nothing", error="cannot be read as a Parquet file"
    ),
    "Numbers document": AwkwardFile(
        "a.numbers", zipped({"Index.zip": ""}), error="is a document, not a table; export it as CSV"
    ),
    # ---- JSON
    "JSON lines with three keys": AwkwardFile(
        "a.jsonl", json.dumps({"a": "x", "b": "y", "c": "z"}).encode(),
        error="which of 'a', 'b', 'c' are source and target? Name both with --source and --target",
    ),
    "JSON lines in UTF-16": AwkwardFile(
        "a.jsonl", json.dumps({"source": "ä", "target": "a"}).encode("utf-16"), [("ä", "a")]
    ),
    "JSON lines with three strings": AwkwardFile(
        "a.jsonl", b'["1", "a", "b"]\n', error="has 3 values per line; which are source and target?"
    ),
}  # fmt: skip
