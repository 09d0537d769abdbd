"""`mission list|show|release|abandon`: look at missions, and the operator's two ways out of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand, wrong_use
from guards.types import Asker
from pipelines import models, schemas, selectors
from pipelines.management import naming
from pipelines.services import missions

#: How many missions a list shows.
USUAL = 50


class Command(JsonCommand):
    """One verb a sub-parser."""

    help = "List and show missions; release a stuck write set; abandon what never started."

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs, and what each needs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help="missions, newest first; one JSON line each")
        listing.add_argument("--status", choices=models.Mission.Status.values)
        listing.add_argument("--stuck", action="store_true", help="only those that hold others up")
        listing.add_argument("--limit", type=int, default=USUAL)
        super().add_arguments(listing)
        showing = verbs.add_parser("show", help="contract, results, events and tool calls")
        release = verbs.add_parser("release", help="free its write set; it fails with that")
        abandon = verbs.add_parser("abandon", help="give it up; only before a worker was started")
        for verb in (showing, release, abandon):
            verb.add_argument("mission", metavar="ID", help="its id, or the start of it")
            super().add_arguments(verb)
        for verb in (release, abandon):
            verb.add_argument("--reason", required=True, help="why; it stays on record")

    def perform(self, **options: Any) -> int:
        """Do what the verb says."""
        if options["verb"] == "list":
            return self._list(options)
        mission = _found(options["mission"])
        if options["verb"] == "show":
            is_covered = selectors.is_covered(mission.pipeline_id, for_person=True)
            whole = schemas.MissionDetail.whole(mission, is_covered=is_covered)
            self.emit(_plain(whole), _described(mission, whole))
            return Exit.AS_ASKED
        act = missions.release if options["verb"] == "release" else missions.abandon
        ended = act(mission_id=mission.pk, reason=options["reason"], by=Asker("operator", "shell"))
        self.emit(_plain(schemas.MissionOut.of(ended)), f"{ended}: {ended.status}")
        return Exit.AS_ASKED

    def _list(self, options: Mapping[str, Any]) -> int:
        if options["limit"] < 1:
            raise wrong_use("--limit is at least 1")
        rows = selectors.stuck_missions() if options["stuck"] else models.Mission.objects.all()
        if options["status"]:
            rows = rows.filter(status=options["status"])
        newest = rows.select_related("stage").order_by("-opened_at")[: options["limit"]]
        for mission in selectors.shown_missions(newest, for_person=True):
            self.emit(_plain(schemas.MissionOut.of(mission)), _line(mission))
        return Exit.AS_ASKED


def _found(named: str) -> models.Mission:
    """The one mission whose id is, or begins with, what was typed."""
    rows = models.Mission.objects.filter(pk__range=naming.ids_from(named))
    found = list(rows.select_related("stage").order_by()[:2])
    if len(found) != 1:
        raise wrong_use(f"{len(found) or 'no'} missions begin with {named!r}"[:200])
    return found[0]


def _plain(shape: schemas.MissionOut) -> dict[str, object]:
    return shape.model_dump(mode="json")


def _line(mission: models.Mission) -> str:
    cost = f"{mission.usd:.2f}/{mission.max_usd:.2f} USD"
    return (
        f"{mission.pk}  {mission.status:<10} {mission.command}  round {mission.round}/"
        f"{mission.rounds}  {cost}  {mission.opened_at:%F %R}"
    )


def _described(mission: models.Mission, whole: schemas.MissionDetail) -> str:
    lines = [_line(mission), f"pipeline-{mission.pipeline_id}, stage {mission.stage.position}"]
    lines.append(f"may write: {', '.join(mission.contract['write_set']) or 'nothing'}")
    for result in whole.results:
        prose = result["prose"].splitlines()[0][:200]
        found = f"{result['verdict']} ({result['confidence']:g})"
        lines.append(f"round {result['round']}: {found} {prose}")
    lines += [
        f"{event.at:%F %T} {event.kind} by {event.actor}" for event in mission.events.order_by("id")
    ]
    if whole.reason:
        lines.append(f"reason: {whole.reason}")
    return "\n".join(lines)
