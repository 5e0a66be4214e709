"""The report of a run or a bundle: one self-contained HTML page for readers without background."""

from regard.reports.page import write_report

__all__ = ["write_report"]
