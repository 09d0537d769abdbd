"""`run_pipelines`: carry out what is due, here and now, without the queue."""

from __future__ import annotations

from typing import Any

from guards.fronts.commands import Exit, JsonCommand
from mail import selectors as mail
from pipelines.models import Pipeline
from pipelines.services import execution, intake


class Command(JsonCommand):
    """Take in every due message and carry out every due pipeline, oldest first."""

    help = "Take in due messages and run due pipelines in this process."

    def perform(self, **options: Any) -> int:
        """Run, and say for each pipeline how it stands then."""
        for message in mail.due_messages():
            intake.take_in(message_id=message.pk)
        due = Pipeline.objects.filter(status__in=Pipeline.DUE).order_by("created_at")
        for pipeline_id in list(due.values_list("pk", flat=True)):
            pipeline = execution.run(pipeline_id=pipeline_id)
            self.emit(
                {"pipeline": str(pipeline.pk), "status": pipeline.status, "error": pipeline.error},
                f"{pipeline}  {pipeline.status}",
            )
        return Exit.AS_ASKED
