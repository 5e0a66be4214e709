"""Torture: kills of training and predict, mutated bundles and fuzzed data files.

    PYTHONPATH=src python benchmarks/torture.py --kills 1000 --cases 100000 --processes 14

Kills: training and predict are killed (SIGKILL) before every file operation of an undisturbed run,
then at random file operations and at random moments, several times in a row. The same command then
resumes, and the final result must equal that of the undisturbed run: all weights and the last
checkpoint bit by bit, all outputs byte by byte, and no other files.

Cases: a mutated bundle or a fuzzed data file is used as the commands use it. It must work or raise
a one-line RegardError, within a minute and a few gigabytes, and leave nothing half-written.

Progress is kept in --work: the same command resumes, and --seconds ends a part of the work.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

# Before torch is imported: forked processes need one thread each and no GPU.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from harness import Check, report
from torture_bundles import BundleCases
from torture_data import DataCases
from torture_kills import PredictKills, TrainingKills
from torture_pool import Pool, Subject

SUBJECTS: dict[str, type[Subject]] = {
    "training": TrainingKills,
    "predict": PredictKills,
    "bundles": BundleCases,
    "data": DataCases,
}


def main() -> None:
    """Run the chosen subjects, one after the other, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subjects", nargs="*", help=f"{', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--kills", type=int, default=1_000, help="of training, and of predict")
    parser.add_argument("--cases", type=int, default=100_000, help="of bundles, and of data files")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all subjects")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder of progress (default: a temporary one)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for name in options.subjects:
        if name not in SUBJECTS:
            parser.error(f"unknown subject {name!r}; choose from {', '.join(SUBJECTS)}")
    with tempfile.TemporaryDirectory(prefix="regard-torture-") as temporary:
        work = options.work or Path(temporary)
        until = time.monotonic() + options.seconds
        checks: list[Check] = []
        for name in options.subjects or SUBJECTS:
            checks += torture(name, options, work / name, until)
    report("torture", checks)
    sys.exit(0 if all(check.ok for check in checks) else 1)


def torture(name: str, options: argparse.Namespace, work: Path, until: float) -> list[Check]:
    """The checks of one subject."""
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    wanted = options.kills if SUBJECTS[name].kills else options.cases
    subject = SUBJECTS[name](work, options.seed)
    pool = Pool(subject, work, options.processes, wanted, until)
    counts, failures = pool.run()
    for failure in failures[:20]:
        print(f"{name} case {failure['case']}: {failure['failure']}", file=sys.stderr)
    unit = "kills" if subject.kills else "cases"
    done = counts.pop(unit, 0)
    facts = ", ".join(f"{value:,} {kind}" for kind, value in sorted(counts.items()))
    seconds = time.monotonic() - start
    print(f"{name}: {done:,} {unit} ({facts}), {len(failures):,} failures, {seconds:.0f} s")
    return [
        Check(f"{name}: {unit}", done, None, wanted, done >= wanted),
        *(Check(f"{name}: {kind}", value, None, None, True) for kind, value in counts.items()),
        Check(f"{name}: failures", len(failures), None, 0, not failures),
    ]


if __name__ == "__main__":
    main()
