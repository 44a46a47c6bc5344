"""The cost curves that a governor starts with: from the kept profile of a model, or measured in a second or two."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from foredraft.drafters.loading import Drafter
from foredraft.governor.cost_curve import CostCurve, Curves
from foredraft.governor.profile import Network, Point, measure
from foredraft.governor.profile_cache import profile_path, read_profile
from foredraft.models.decoder import Decoder

log = logging.getLogger("foredraft")

# Every number of rows after little context, and a few of them after more: a second for a model of 1.5B.
GRID = ((64, (1, 2, 4, 8, 16, 32)), (1024, (1, 8)))
ROUNDS = 2
MODEL, DRAFT = "model", "draft"  # roles in a profile
DRAFT_MODEL = "draft_model"  # the proposer that runs the latter


def curves(
    decoders: Mapping[str, Decoder],
    files: Mapping[str, Path],
    threads: int,
    isa: str,
    drafters: Mapping[str, Drafter] = MappingProxyType({}),
) -> Curves:
    """The cost curves of the models in the roles "model" and (if given) "draft", and of learned drafters, by kind.

    A profile that `foredraft profile` has kept comes first, then what was measured here before. What is measured now is
    kept for the next time: of models together, of each drafter apart. files: by role, "drafter KIND" among them where
    it has a file of its own.
    """
    kept = decoders[DRAFT].kept if DRAFT in decoders else None
    path = profile_path({role: files[role] for role in decoders}, threads, isa, None if kept is None else len(kept))
    full = read_profile(path)
    points: dict[str, tuple[Point, ...]] | None = {MODEL: full.points, DRAFT: full.draft} if full else None
    if points is None or not _is_whole(points, decoders):
        points = _quick({role: Network.of(decoder) for role, decoder in decoders.items()}, path)
    drafts = {DRAFT_MODEL: CostCurve(points[DRAFT])} if DRAFT in decoders else {}
    for kind, drafter in drafters.items():
        role = f"drafter {kind}"
        path = profile_path({MODEL: files[MODEL], role: files.get(role, files[MODEL])}, threads, isa)
        drafts[kind] = CostCurve(_quick({role: Network.of_drafter(drafter)}, path)[role])
    return Curves(CostCurve(points[MODEL]), drafts)


def _quick(networks: Mapping[str, Network], path: Path) -> dict[str, tuple[Point, ...]]:
    """What was kept beside `path`, or else is measured now."""
    path = path.with_suffix(".quick.json")
    known = _read(path, networks)
    if known:
        return known
    points = {role: tuple(_points(network)) for role, network in networks.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({role: [vars(point) for point in own] for role, own in points.items()}))
        part.replace(path)
    except OSError as error:
        log.info("the costs of passes are not kept for the next time: %s", error)
    return points


def _points(network: Network) -> Iterator[Point]:
    limit = network.context_length
    for context, rows in GRID:
        fitting = [count for count in rows if count < limit]
        # The fastest of so few rounds: one that somebody disturbed would count too much in a median.
        yield from measure(network, fitting, [min(context, limit - fitting[-1])], ROUNDS, summary=min)


def _read(path: Path, roles: Collection[str]) -> dict[str, tuple[Point, ...]] | None:
    """What was kept, if it is there and complete."""
    try:
        values = json.loads(path.read_bytes())
        points = {role: tuple(Point(**point) for point in values[role]) for role in roles}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return points if _is_whole(points, roles) else None


def _is_whole(points: Mapping[str, tuple[Point, ...]], roles: Iterable[str]) -> bool:
    """Whether there is a curve for each role, from one row on."""
    return all(any(point.rows == 1 for point in points[role]) for role in roles)
