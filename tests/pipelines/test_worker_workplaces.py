"""Where a `claude` worker works: what of it is there, what is open, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.exceptions import MissionRefused, SandboxMissing
from pipelines.models import Mission
from pipelines.runners.claude import sandbox, workplace
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.runner import ClaudeRunner
from pipelines.snapshots import Snapshot, snapshot
from pipelines.types import CommandSpec
from teams.models import Project
from tests.pipelines.factories import MissionDesk
from tests.pipelines.test_worker_commands import job, spec


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "site" / "pages").mkdir(parents=True)
    (directory / "README").write_text("read me")
    return directory


def visible(
    command: CommandSpec, work: Path, own: Path, before: Snapshot | None = None
) -> sandbox.Walls:
    made = job(command, directory=own, workplace=work)
    program = Path("/usr/bin/claude")
    return workplace.walls(made, Lodging(own.parent / "m"), (), program, before or Snapshot({}))


@pytest.mark.one_database
@pytest.mark.django_db
def test_a_project_is_read_only_but_for_its_write_set(project, tmp_path):
    own = tmp_path / "p"
    own.mkdir()
    (project / "src").mkdir()
    home = tmp_path / "m" / "home"
    walls = visible(spec(project="web", write_set=["site/pages"]), project, own)
    assert set(walls.readable) >= {project, own}
    assert set(walls.writable) == {home, project / "site" / "pages"}
    of_a_file = visible(spec(project="web", write_set=["README", "site/pages"]), project, own)
    assert set(of_a_file.writable) == {home, project, project / "site" / "pages"}
    assert set(of_a_file.readable) >= {project / "src", project / "site"}
    assert project / "README" not in of_a_file.readable
    of_a_new_one = visible(spec(project="web", write_set=["site/new/deep.txt"]), project, own)
    assert set(of_a_new_one.writable) == {home, project / "site"}
    assert set(of_a_new_one.readable) >= {project, project / "site" / "pages"}
    closed = visible(spec(project="web", write_set=[]), project, own)
    assert set(closed.writable) == {home}
    returning = spec(project="web", write_set=[], files=True, output_schema={"type": "object"})
    assert set(visible(returning, project, own).writable) == {home, own}


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.fault("W14")
def test_a_repository_inside_a_write_set_is_closed_unless_it_is_named(project, tmp_path):
    """Whoever uses git there runs the hooks and the programs that its configuration names."""
    site, own = project / "site", tmp_path / "p"
    own.mkdir()
    for repository in (project, site, site / "pages"):
        (repository / ".git" / "hooks").mkdir(parents=True)
    before = snapshot(project)
    walls = visible(spec(project="web", write_set=["site"]), project, own, before)
    assert {site / ".git", site / "pages" / ".git"} <= set(walls.readable)
    assert set(walls.writable) == {tmp_path / "m" / "home", site}
    named = visible(spec(project="web", write_set=["site", "site/.git"]), project, own, before)
    assert site / ".git" in named.writable and site / "pages" / ".git" in named.readable
    Project.objects.create(slug="pages", name="Pages", root=str(site / "pages"))
    hiding = visible(spec(project="web", write_set=["site"]), project, own, before)
    assert site / "pages" / ".git" not in hiding.readable and site / "pages" in hiding.hidden


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.fault("W14")
@pytest.mark.parametrize(("entry", "target"), [("out/m", ".."), ("new", ".git"), ("in/a", "site")])
def test_a_write_set_that_leads_elsewhere_by_a_link_is_refused(project, tmp_path, entry, target):
    """What one worker may make, and the next one's walls must not follow: `new`, to `.git`."""
    (project / ".git").mkdir()
    command = spec(project="web", write_set=[entry])
    visible(command, project, tmp_path)
    (project / entry.partition("/")[0]).symlink_to(target)
    with pytest.raises(SandboxMissing, match="by a link"):
        visible(command, project, tmp_path)


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["DATA_DIR", "SECRETS_DIR", "MISSIONS_DIR", "BASE_DIR"])
def test_a_project_around_or_inside_our_own_places_is_refused(project, tmp_path, settings, setting):
    own = tmp_path / "p"
    own.mkdir()
    visible(spec(project="web"), project, own)
    for place in (project / "var", project, project.parent):
        setattr(settings, setting, place)
        with pytest.raises(SandboxMissing, match="lie inside one another"):
            visible(spec(project="web"), project, own)


@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["DATA_DIR", "SECRETS_DIR", "PIPELINES_DIR", "MISSIONS_DIR"])
def test_our_own_places_are_never_inside_what_every_worker_sees(tmp_path, settings, setting):
    command = spec()
    visible(command, tmp_path, tmp_path)
    setattr(settings, setting, "/usr/local/countersign")
    with pytest.raises(SandboxMissing, match=setting):
        visible(command, tmp_path, tmp_path)


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("setting", "form"),
    [
        ("BASE_DIR", "{}"),
        ("CLAUDE_API_KEY_REF", "file:{}/.env"),
        ("DATABASE_URL", "sqlite:///{}/.env"),
    ],
)
def test_a_file_with_our_secrets_is_in_no_project_and_nowhere_that_every_worker_sees(
    setting, form, project, tmp_path, settings, monkeypatch
):
    def moved_to(directory: Path) -> None:
        (directory / ".env").write_text("")
        setattr(settings, setting, form.format(directory))

    own, elsewhere, python = tmp_path / "p", tmp_path / "etc", tmp_path / "python"
    for directory in (own, elsewhere, python):
        directory.mkdir()
    monkeypatch.setattr("sys.base_prefix", str(python))
    moved_to(elsewhere)
    visible(spec(project="web"), project, own)
    for seen in (project, python):
        moved_to(seen)
        with pytest.raises(SandboxMissing, match="lie"):
            visible(spec(project="web"), project, own)


@pytest.mark.django_db
@pytest.mark.parametrize("root", ["/", "/etc", "/root", "/home"])
def test_a_system_directory_is_no_project(root, tmp_path):
    with pytest.raises(SandboxMissing):
        visible(spec(project="web"), Path(root), tmp_path)


@pytest.mark.one_database
@pytest.mark.django_db
def test_another_project_inside_of_this_one_is_hidden(project, tmp_path):
    Project.objects.create(slug="web", name="Web", root=str(project))
    Project.objects.create(slug="pages", name="Pages", root=str(project / "site" / "pages"))
    Project.objects.create(slug="far", name="Far", root=str(tmp_path / "far"))
    own = tmp_path / "p"
    own.mkdir()
    assert visible(spec(project="web"), project, own).hidden == (project / "site" / "pages",)


@pytest.mark.one_database
@pytest.mark.django_db
def test_a_mission_goes_on_where_it_began_or_not_at_all(settings, tmp_path):
    """Its project's root may be another one by the time that its question is answered."""
    settings.CLAUDE_BINARY = "/bin/true"
    desk = MissionDesk(directory=tmp_path, workplace=tmp_path)
    runner = ClaudeRunner()
    for _ in range(2):
        runner.prepare(desk.job())
    with pytest.raises(MissionRefused) as refused:
        runner.prepare(desk.job(workplace=tmp_path / "elsewhere"))
    assert refused.value.rule == "contract-changed"
    assert Mission.objects.get().contract["workplace"] == str(tmp_path)
