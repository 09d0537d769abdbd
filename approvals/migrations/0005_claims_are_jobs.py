import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_jobs_of_effects")]
    operations = [
        migrations.RemoveField(
            model_name='effect',
            name='claimed_by',
        ),
        migrations.RemoveField(
            model_name='effect',
            name='deadline',
        ),
        migrations.RemoveField(
            model_name='effect',
            name='fence',
        ),
        migrations.AlterField(
            model_name="effect",
            name="job",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="effect",
                to="approvals.job",
            ),
        ),
    ]
