import subprocess
import sys
from pathlib import Path

from flows.environment import environment


def test_analytics_are_off_and_files_stay_in_the_workspace(tmp_path: Path) -> None:
    variables = environment(tmp_path, {})
    assert variables["DO_NOT_TRACK"] == variables["DVC_NO_ANALYTICS"] == "1"
    assert variables["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert Path(variables["PREFECT_HOME"]).is_relative_to(tmp_path)


def test_prefect_and_dvc_heed_the_switches(tmp_path: Path) -> None:
    code = (
        "from prefect.settings import get_current_settings as s; from prefect.analytics import is_telemetry_enabled;"
        "from dvc.analytics import is_enabled;"
        "print(s().server.analytics_enabled, s().cloud.enable_orchestration_telemetry, is_telemetry_enabled(),"
        " is_enabled(), s().home)"
    )
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, bare), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"] * 4 + [str(tmp_path / ".palimpsest" / "prefect")]
    assert not (tmp_path / ".prefect").exists()


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    variables = environment(tmp_path, {"PREFECT_HOME": "mine", "NO_PROXY": "example.org"})
    assert variables["PREFECT_HOME"] == "mine"
    assert variables["NO_PROXY"] == "example.org,127.0.0.1,localhost"


def test_imports_stay_light() -> None:
    """One process imports them in the order in which they may load more."""
    heavy, code = ["torch", "transformers", "sklearn"], ["import sys"]
    for module, more in (("flows.ui", ["prefect", "dvc"]), ("flows.runner", ["prefect"]), ("flows.build", [])):
        code.append(f"import {module}; print([name for name in {heavy + more!r} if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True)
    assert done.stdout == "[]\n" * 3, done.stderr
