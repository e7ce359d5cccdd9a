import pytest

from flows import summary
from palimpsest.progress import track


def test_the_lines_of_the_library_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    list(track(range(4), name="two words", total=8, private=False, unit="step"))
    assert summary.parse_percent(capsys.readouterr().err.strip()) == 50
    list(track(range(9), name="two words", total=9, private=True))
    assert [summary.parse_percent(line) for line in capsys.readouterr().err.splitlines()] == [25, 50, 75, 100]


@pytest.mark.parametrize(
    ("line", "percent"),
    [("progress a 9/3 1 it/s", 100), ("progress a 1/0 1 it/s", None), ("a 1/2", None), ("progress a 7 eta", None)],
)
def test_odd_lines(line: str, percent: float | None) -> None:
    assert summary.parse_percent(line) == percent


@pytest.mark.parametrize("name", ["Dp_Train@a.b", "sub/dvc.yaml:x", "-x-"])
def test_keys_hold_only_what_prefect_allows(name: str) -> None:
    assert set(summary.artifact_key(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_no_artifact_counts_what_a_private_loop_loops_over(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    from prefect.artifacts import Artifact

    list(track(range(1237), name="near-duplicates", total=1237, private=True))
    progress, kept = summary.Progress("progress-private"), []
    for line in capsys.readouterr().err.splitlines():
        progress(line)
        artifact = Artifact.get("progress-private")
        assert artifact is not None
        kept.append((artifact.data, artifact.description))
    assert kept[0] == (25, "near-duplicates 25% eta 0:00:00")
    assert kept[-1] == (100, "near-duplicates 100% eta 0:00:00")


def test_updates_are_rare_but_the_end_is_always_shown(api: str) -> None:
    from prefect.artifacts import Artifact
    from prefect.client.orchestration import get_client

    clock, shown = iter((0.0, 0.0, 0.5, 1.0, 1.0, 1.1)), []
    progress = summary.Progress("progress-throttle", clock=lambda: next(clock))
    for done in (1, 2, 3, 4):
        progress(f"progress loop {done}/4 1.00 it/s eta 0:00:01")
        found = Artifact.get("progress-throttle")
        assert found is not None
        shown.append(found.data)
    assert shown == [25, 25, 75, 100]
    assert get_client(sync_client=True).api_url == f"{api}/"
