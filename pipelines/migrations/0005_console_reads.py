"""Indexes that the console reads by."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('guards', '0001_initial'),
        ('pipelines', '0004_rule_hits_by_day'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='mission',
            index=models.Index(fields=['opened_at'], name='mission_opened'),
        ),
        migrations.AddIndex(
            model_name='stage',
            index=models.Index(condition=models.Q(('runner', 'claude'), ('status', 'failed')), fields=['-finished_at'], name='stage_worker_failed'),
        ),
    ]
