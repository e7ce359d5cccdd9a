"""Remotes in a real S3-compatible server: which files go where, and what a second clone does with them."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dvc.repo import Repo

from bench import s3
from bench.pages import ROOT, blocks
from palimpsest.graph.state import State
from palimpsest.work.context import environment, open_workspace, standings
from palimpsest.workspace import PAGE, STATEMENT
from tests.pipeline.place import Place
from tests.pipeline.test_file_modes import watched
from tests.pipeline.test_pipeline_runs import hashes

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

PRIVATE, RELEASE = "vault", "shared"  # names of remotes, and of their buckets
KEY, SECRET = "key", "secret-of-the-store"
USUAL = 0o022  # umask
CLONED = "ssh://git.example.org/tickets"  # what the page's commands clone
_NOBODY = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")


@dataclass(frozen=True)
class Store:
    """A server that asks for a key, and the folder whose folders are its buckets."""

    address: str
    folder: Path

    def names(self, bucket: str) -> set[str]:
        """The names in DVC's cache of what lies in a bucket."""
        return {"".join(path.parts[-2:]) for path in (self.folder / bucket).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server of S3 on loopback."""
    folder = tmp_path_factory.mktemp("store")
    for bucket in (PRIVATE, RELEASE):
        (folder / bucket).mkdir()
    with s3.server(folder, KEY, SECRET) as address, pytest.MonkeyPatch.context() as patch:
        for name, text in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "here"}.items():
            patch.setenv(f"AWS_{name}", text)
        yield Store(address, folder)


@pytest.fixture(scope="module")
def pushed(ran: Place, copy: Callable[[Place], Place], store: Store) -> Iterator[Place]:
    """A workspace that has run and pushed to both remotes, and once more to the one of the release by name."""
    place = copy(ran)
    place.edit("stores", private=PRIVATE)
    with place.entered():
        with Repo() as repo, repo.config.edit("repo") as settings:
            settings["remote"] = {
                name: {"url": f"s3://{name}/files", "endpointurl": store.address} for name in (PRIVATE, RELEASE)
            }
            settings["core"]["remote"] = RELEASE
        with Repo() as repo:
            repo.push()
            repo.push(remote=RELEASE)
        yield place


def test_private_files_go_to_the_private_remote_alone_and_public_ones_to_the_other(pushed: Place, store: Store) -> None:
    with Repo() as repo:
        outputs = [out for stage in repo.index.stages for out in stage.outs if out.use_cache]
    private = {name for out in outputs if out.remote == PRIVATE for name in hashes(pushed, out)}
    public = {name for out in outputs if out.remote is None for name in hashes(pushed, out)}
    assert all(out.can_push for out in outputs)
    assert store.names(PRIVATE) == private
    assert store.names(RELEASE) == public
    assert len(private - public) > 20


def test_a_second_clone_by_the_pages_commands_verifies_without_a_run_or_a_charge_and_is_its_owners_alone(
    pushed: Place, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, clone = pushed.ledger.head(), tmp_path / "tickets"
    ignored = pushed.workspace / ".gitignore"
    ignored.write_text("".join(line for line in ignored.read_text().splitlines(True) if "dvc.lock" not in line))
    for command in (["init", "--quiet"], ["add", "--all"], [*_NOBODY, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *command], cwd=pushed.workspace, check=True)
    (shown,) = (block.script for block in blocks(ROOT / "docs/howto/remotes.md") if CLONED in block.code)
    commands = ["bash", "-euc", shown.replace(CLONED, str(pushed.workspace))]
    with watched(tmp_path) as found:
        subprocess.run(commands, cwd=tmp_path, env=environment(), umask=USUAL, check=True)
    assert found == set()
    monkeypatch.chdir(clone)
    for path in (PAGE, STATEMENT):
        assert (clone / path).read_bytes() == (pushed.workspace / path).read_bytes()
    runs = {one.name for one in standings(open_workspace(clone), fresh=True) if one.state is State.RUNS}
    assert runs == {"inputs", "release"}, (
        "what looks outside the graph, and what writes the folder that DVC has no copy of"
    )
    assert pushed.ledger.head() == head
