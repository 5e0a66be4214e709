"""Flights: whether a search can fly, how many seats it takes, and close calls decided as usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from threading import Lock
from weakref import WeakKeyDictionary, proxy

import torch

from regard.inference.continuous_batching import SEATS, USUAL, Flight, Passenger, rounded
from regard.inference.fast_transformer import Swift
from regard.inference.static_decoder import cannot
from regard.models import Model
from regard.search.beam import Beam
from regard.search.constraints import longest, shortest
from regard.search.greedy import Greedy
from regard.search.hypothesis import Found, Search

WIDEST = 16  # beams
FARTHEST = 2_048  # tokens of a source or an answer
KEPT = 4  # flights of a model that stay ready
SHARE = 0.25  # of the memory that is free, for keys and values
_INSTALLED = find_spec("triton") is not None

_LOCK = Lock()  # a flight's seats are taken by one search at a time
_READY: WeakKeyDictionary[Model, dict[tuple[object, int], Flight]] = WeakKeyDictionary()


def flies(search: Search, model: Model, device: torch.device | str) -> bool:
    """Whether this search can be repeated by a GPU alone: greedy or a beam, with no rules but for lengths."""
    if torch.device(device).type != "cuda" or not isinstance(model, Swift) or not _INSTALLED:
        return False
    if torch.cuda.get_device_capability(model.tables[0].device) < (8, 0):  # its matrix units know no 32-bit numbers
        return False
    if type(search) is not Greedy and not (type(search) is Beam and search.size <= WIDEST and search.required is None):
        return False
    plain = all(isinstance(rule, shortest | longest) for rule in search.rules)
    return plain and cannot(model, beams=_beams(search)) is None


def passengers(search: Greedy | Beam, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[Passenger]:
    """Those who can fly, under their places among the sources (ends included), whose answers may be so long. Not those
    who are too long for it, nor those whose rules leave nothing to say."""
    least = max((rule.count for rule in search.rules if isinstance(rule, shortest)), default=0)
    most = min((rule.count for rule in search.rules if isinstance(rule, longest)), default=FARTHEST)
    known = [Passenger(place, ids, least, min(most, limits[place])) for place, ids in enumerate(sources)]
    return [one for one in known if len(one.ids) <= FARTHEST and least <= one.most < FARTHEST]


def fly(search: Greedy | Beam, model: Swift, waiting: Sequence[Passenger]) -> Mapping[int, Found]:
    """What is found for each by number; for those that found no flight, nothing."""
    with _LOCK, torch.cuda.device(model.tables[0].device):
        return _flown(search, model, waiting)


def _flown(search: Greedy | Beam, model: Swift, waiting: Sequence[Passenger]) -> Mapping[int, Found]:
    flight = _flight(search, model, waiting, _wanted(len(waiting), model.tables[0].dtype)) if waiting else None
    if flight is None:
        return {}
    found = flight.fly(waiting)
    if flight.steady.slots != USUAL and (close := [one for one in waiting if found[one.number].close]):
        usual = _flight(search, model, close, USUAL)
        again = {} if usual is None or usual.steady.slots != USUAL else usual.fly(close)
        found = {number: again.get(number, some) for number, some in found.items() if number in again or not some.close}
    return found


def _beams(search: Greedy | Beam) -> int:
    return search.size if isinstance(search, Beam) else 1


def _wanted(count: int, dtype: torch.dtype) -> int:
    """Seats for so many: a large flight only pays if it is filled well. In half precision many calls are close, and a
    usual flight's step takes no longer than one of eight seats: 2 to 8 go there at once instead of twice."""
    fitting = next((seats for seats in SEATS if count <= (seats if seats < USUAL else 4 * seats)), SEATS[-1])
    return fitting if dtype == torch.float32 or count == 1 else max(fitting, USUAL)


def _flight(search: Greedy | Beam, model: Swift, waiting: Sequence[Passenger], wanted: int) -> Flight | None:
    """A flight for these, with as many seats as wanted or as there is memory for; None where there is none."""
    room = rounded(max(one.most for one in waiting) + 1, 64)
    memory = max(one.room for one in waiting)
    if cannot(model, beams=_beams(search), room=room, memory=memory) is not None:
        return None
    ready = _READY.setdefault(model, {})
    kind = (search.size, search.best, search.length) if isinstance(search, Beam) else None
    for seats in [seats for seats in SEATS[::-1] if seats <= wanted]:
        flight = ready.pop((kind, seats), None)
        if flight is None or not flight.fits(room, memory):
            if flight is not None:
                room, memory = max(room, flight.steady.room), max(memory, flight.steady.memory_room)
            del flight
            if not _affordable(search, model, seats, room, memory):
                continue
            weak = proxy(model)  # a flight must not keep its model
            flight = Flight(search, weak, seats, room=room, memory=memory)  # type: ignore[arg-type]
        ready[kind, seats] = flight  # the latest comes last
        for old in list(ready)[:-KEPT]:
            del ready[old]
        return flight
    return None


def _affordable(search: Greedy | Beam, model: Swift, seats: int, room: int, memory: int) -> bool:
    """Whether the keys and values of such a flight fit into a part of what is free."""
    table, beams = model.tables[1], _beams(search)
    each = 2 * len(model.decoder) * model.kv_heads * model.dim * table.element_size()
    free, _ = torch.cuda.mem_get_info(table.device)
    free += torch.cuda.memory_reserved(table.device) - torch.cuda.memory_allocated(table.device)
    return seats * each * (beams * room + memory) <= SHARE * free
