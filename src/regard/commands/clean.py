"""`regard clean`: a filtered file of pairs, and a report of what was dropped and why."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from regard.commands.formats import SPACES, format_table
from regard.commands.options import CleaningRules
from regard.commands.output_files import check_not_folder, write_error
from regard.errors import RegardError
from regard.text import Corpus, Pair
from regard.text.corpus_stats import SystematicSample
from regard.text.data_checks import MAX_SAMPLE, TypicalPair, unusual_text
from regard.text.tokenizers import nfc
from regard.text.workbooks import write_workbook

HEADER = ("source", "target")
SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".xlsx")


def clean(corpus: Corpus, out: Path, rules: CleaningRules, excluded: Corpus | None = None) -> None:
    """Write the pairs that the rules keep, and those that they drop to OUT.dropped.tsv."""
    if out.suffix.lower() not in SUFFIXES:
        raise RegardError(f"cannot write {str(out)!r}: name it {', '.join(SUFFIXES)}")
    check_not_folder(out)
    sources = () if excluded is None else (pair.source for pair in excluded)
    cleaner = Cleaner(corpus, rules, sources)
    reader = corpus.read()
    partial = out.with_name(f".{out.name}.partial")
    report = out.with_name(f"{out.name}.dropped.tsv")
    kept = 0
    try:
        with (
            open(partial, "w", encoding="utf-8", newline="") as file,
            open(report, "w", encoding="utf-8", newline="") as dropped,
        ):
            write = pair_writer(out.suffix.lower(), file)
            dropped.write("reason\tsource\ttarget\n")
            for pair, reason in cleaner.filter(reader):
                if reason:
                    row = (reason, *pair)
                    dropped.write("\t".join(cell.translate(SPACES) for cell in row) + "\n")
                else:
                    write(pair)
                    kept += 1
        if not kept:
            raise RegardError(f"the rules drop all pairs; loosen one, and see {str(report)!r}")
        if out.suffix.lower() == ".xlsx":
            fresh = out.with_name(f".{out.name}.new")
            write_workbook(partial, fresh)
            fresh.replace(partial)
        partial.replace(out)
    except OSError as error:
        raise write_error(out, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    print(format_counts(out, kept, cleaner.dropped, reader.problems))
    if cleaner.dropped.total():
        print(f"the dropped pairs are in {report}")
    else:
        report.unlink()


def pair_writer(suffix: str, file: TextIO) -> Callable[[Pair], Any]:
    """A function that writes one pair in the format of a file name."""
    if suffix == ".jsonl":
        return lambda pair: file.write(json.dumps(pair._asdict(), ensure_ascii=False) + "\n")
    if suffix in (".csv", ".xlsx"):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        return writer.writerow
    file.write("\t".join(HEADER) + "\n")
    return lambda pair: file.write("\t".join(cell.translate(SPACES) for cell in pair) + "\n")


def format_counts(
    out: Path, kept: int, dropped: Mapping[str, int], problems: Mapping[str, int]
) -> str:
    """What was kept and dropped, as a table."""
    counts = {**problems, **dropped}
    total = sum(counts.values())
    lines = [f"{out}: kept {kept:,} of {kept + total:,} pairs"]
    rows = [[reason, f"{count:,}"] for reason, count in counts.items() if count]
    if rows:
        lines += ["", format_table(["dropped because of", "pairs"], rows)]
    return "\n".join(lines)


class Cleaner:
    """Decides for each pair of a corpus whether it is dropped; reads the corpus once before.

    `excluded` are sources to drop, such as those of a held-out set.
    """

    def __init__(
        self, pairs: Iterable[Pair], rules: CleaningRules, excluded: Iterable[str] = ()
    ) -> None:
        self.rules = rules
        self.dropped: Counter[str] = Counter()
        self._excluded = {nfc(source) for source in excluded}
        sample: SystematicSample[Pair] = SystematicSample(len, max_items=MAX_SAMPLE)
        targets: dict[str, Counter[str]] = {}
        for pair in pairs:
            sample.add(pair)
            if rules.drop_conflicts:
                targets.setdefault(pair.source, Counter())[pair.target] += 1
        self._typical = TypicalPair(sample.items)
        self._best = {source: found.most_common(1)[0][0] for source, found in targets.items()}
        self._seen: set[Pair] = set()

    def filter(self, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str]]:
        """Each pair with the reason why it is dropped; empty if it is kept."""
        for pair in pairs:
            reason = self._reason(pair)
            self.dropped[reason] += bool(reason)
            yield pair, reason

    def _reason(self, pair: Pair) -> str:
        rules = self.rules
        if self._excluded and nfc(pair.source) in self._excluded:
            return "source is excluded"
        unusual = unusual_text(pair)
        if unusual == "broken characters" and not rules.keep_broken:
            return unusual
        if unusual == "markup" and rules.drop_markup:
            return unusual
        if rules.max_length and max(map(len, pair)) > rules.max_length:
            return "too long"
        if rules.drop_identical and pair.source == pair.target:
            return "target equals source"
        differs = self._typical.differs(pair, max_ratio=rules.max_ratio or float("inf"))
        if differs == "length":
            return "length ratio"
        if differs == "script" and rules.drop_scripts:
            return "other script"
        if rules.drop_conflicts and self._best[pair.source] != pair.target:
            return "conflicting target"
        if not rules.keep_duplicates and pair in self._seen:
            return "duplicate"
        self._seen.add(pair)
        return ""
