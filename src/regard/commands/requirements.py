"""Installed versions of the packages that Regard needs, and of those that its extras need."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from regard import __version__

LINE = re.compile(r"^([\w.-]+)(?:\[.*?\])?\s*(?:>=\s*([\d.]+))?")


@dataclass(frozen=True)
class PackageRequirement:
    """A package with its minimum and its installed version; `extra` is "" if it is required."""

    name: str
    minimum: str
    installed: str | None
    extra: str = ""

    @property
    def problem(self) -> str | None:
        """Why the requirement is not met; None if it is."""
        if self.installed is None:
            return f"{self.name} is not installed"
        if self.minimum and _numbers(self.installed) < _numbers(self.minimum):
            return f"{self.name} {self.installed} is too old; {self.minimum} or newer is needed"
        return None

    @property
    def fix(self) -> str:
        """The command that installs the package."""
        wanted = f"{self.name}>={self.minimum}" if self.minimum else self.name
        return f'pip install "{wanted}"'


def requirements() -> list[PackageRequirement]:
    """The requirements in the metadata of the installed package; none without metadata."""
    try:
        lines = metadata.requires("regard") or []
    except metadata.PackageNotFoundError:
        return []
    return list(_parse(lines))


def metadata_version() -> str | None:
    """The version that pip knows; None if Regard runs from its sources only."""
    return installed_version("regard")


def is_outdated() -> bool:
    """Whether the metadata of pip belong to another version than this code."""
    return metadata_version() not in (None, __version__)


def installed_version(name: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _parse(lines: list[str]) -> Iterator[PackageRequirement]:
    for line in lines:
        requirement, _, marker = line.partition(";")
        below = re.search(r"python_version < ['\"]3\.(\d+)['\"]", marker)
        if below and sys.version_info >= (3, int(below[1])):
            continue
        extra = re.search(r"extra == ['\"](\w[\w-]*)['\"]", marker)
        if found := LINE.match(requirement.strip()):
            name, minimum = found[1], found[2] or ""
            yield PackageRequirement(
                name, minimum, installed_version(name), extra[1] if extra else ""
            )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release: (2, 13) of "2.13.0+cpu". Zeros at the end do not count."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
