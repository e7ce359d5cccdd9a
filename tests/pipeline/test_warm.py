"""A stage that starts warm against one that starts as it is: what it sees, how it ends, what is drawn in it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from psutil import _psutil_linux

from stages import warm

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(300)]

PROBE = """
import sys
libraries = sorted({"torch", "numpy", "opendp", "palimpsest"} & sys.modules.keys())  # before it imports any
import json, os, signal, threading
from pathlib import Path

def see():
    print(__name__, __spec__.name, sys.argv, sys.path, sys.flags, os.getcwd(), os.environ["TOLD"])
    print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), sys.stdin.read(), sys.stdout.write_through)
    print("to the other", file=sys.stderr)

def late():
    import atexit
    atexit.register(print, "at the end")
    threading.Thread(target=lambda: (threading.Event().wait(0.2), print("a thread"))).start()
    sys.stdout = open(1, "w", buffering=10_000)
    print("unflushed", end="")

def draw():
    import random, ssl, uuid, numpy, torch, opendp.prelude as dp
    from palimpsest.privacy.entropy import NoiseSource
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    steps = [dp.m.make_laplace(*space, scale=1e9), dp.m.make_gaussian(*space, scale=1e9)]
    told = {
        "random": random.random(), "uuid": str(uuid.uuid4()), "openssl": ssl.RAND_bytes(16).hex(),
        "numpy": numpy.random.random(), "numpy generator": numpy.random.default_rng().random(),
        "torch": torch.rand(1).item(), "torch seed": torch.initial_seed(),
        "opendp": [step(0) for step in steps], "ours": NoiseSource().uniform(2).tolist(),
    }
    print(json.dumps(told))

def threads():
    import torch, threadpoolctl
    pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    print(torch.get_num_threads(), pools, torch.cuda.is_initialized())

def sleep():
    try:
        Path("began").write_text(json.dumps([os.getpid(), os.getppid()]))  # from here on the interrupt may come
        threading.Event().wait(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        threading.Event().wait(60 if sys.argv[2:] else 0)
        sys.exit(130)

ends = {"fail": lambda: 1 / 0, "kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "leave": lambda: sys.exit(3)}
print(libraries) if sys.argv[1] == "libraries" else {**globals(), **ends}[sys.argv[1]]()
"""
WITHOUT_PANDAS = """
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "pandas" else found(name, *rest)
"""
WARM, COLD = "['numpy', 'torch']\n", "[]\n"


class Probe:
    """A module among the stages' own, in a folder of its own, and a server that may be asked to run it."""

    def __init__(self, folder: Path) -> None:
        stages = folder / "stages"
        stages.mkdir()
        for name in ("__init__.py", "packaged.py", "warm.py"):
            (stages / name).symlink_to(Path(warm.__file__).with_name(name))
        (stages / "probe.py").write_text(PROBE)
        (folder / "brought.py").write_text(PROBE)
        places = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1", "TOLD": "so"}
        self.folder, self.cold = folder, {**os.environ, **own}
        self.cold.pop(warm.VARIABLE, None)

    def start(self, *arguments: str, packaged: bool = False, **variables: str) -> "subprocess.Popen[str]":
        module = ["stages.packaged", "brought"] if packaged else ["stages.probe"]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *module, *arguments], cwd=self.folder, env={**self.cold, **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *arguments: str, packaged: bool = False, **variables: str) -> tuple[int, str, str]:
        process = self.start(*arguments, packaged=packaged, **variables)
        printed = process.communicate("typed")
        return process.returncode, *printed

    def began(self, **variables: str) -> tuple["subprocess.Popen[str]", psutil.Process, psutil.Process]:
        """A process that sleeps: itself, its fork and the fork's keeper."""
        (self.folder / "began").unlink(missing_ok=True)
        process = self.start("sleep", **variables)
        while not (self.folder / "began").exists() or not (self.folder / "began").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        stage, keeper = map(psutil.Process, json.loads((self.folder / "began").read_text()))
        return process, stage, keeper


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return Probe(tmp_path_factory.mktemp("warm"))


@pytest.fixture(scope="module")
def served(probe: Probe) -> Iterator[dict[str, str]]:
    with warm.serve_stages(probe.cold) as variables:
        place = Path(variables[warm.VARIABLE])
        assert place.parent.stat().st_mode & 0o777 == 0o700
        yield variables
    assert not place.parent.exists()


def test_a_stage_starts_where_the_libraries_are_imported_and_nothing_of_ours(
    probe: Probe, served: dict[str, str]
) -> None:
    assert probe.run("libraries", **served)[1] == WARM
    assert probe.run("libraries")[1] == COLD


def test_a_stage_of_a_package_starts_as_ours_do(probe: Probe, served: dict[str, str]) -> None:
    """And is the program of its process: its name, its arguments, its end."""
    assert probe.run("libraries", packaged=True, **served)[1] == WARM
    assert probe.run("libraries", packaged=True)[1] == COLD
    for variables in ({}, served):
        status, printed, _ = probe.run("see", packaged=True, **variables)
        assert (status, printed.split()[:2]) == (0, ["__main__", "brought"])
        assert f"['{probe.folder / 'brought.py'}', 'see']" in printed
        assert probe.run("leave", packaged=True, **variables)[0] == 3


def test_a_stage_starts_warm_where_pandas_is_not_installed(probe: Probe, tmp_path: Path) -> None:
    """Python finds no pandas, as `sitecustomize` has it, which each process reads at its start."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PANDAS)
    place = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{probe.cold['PYTHONPATH']}"}
    with warm.serve_stages({**probe.cold, **place}) as variables:
        assert probe.run("libraries", **variables, **place)[1] == WARM


@pytest.mark.parametrize("how", ["see", "late", "leave", "fail", "kill"])
def test_it_sees_prints_and_ends_as_it_does_in_a_process_of_its_own(
    probe: Probe, served: dict[str, str], how: str
) -> None:
    status, *printed = probe.run(how)
    assert status == {"see": 0, "late": 0, "leave": 3, "fail": 1, "kill": -9}[how]
    there, *same = probe.run(how, **served)
    assert there == (status if status >= 0 else 128 - status)  # as a shell tells a signal
    assert same[0] == printed[0]
    assert same[1].splitlines()[-1:] == printed[1].splitlines()[-1:]


def test_no_two_forks_draw_the_same_from_any_source(probe: Probe, served: dict[str, str]) -> None:
    first, second = (json.loads(probe.run("draw", **served)[1]) for _ in range(2))
    assert len(first) == 9
    assert [source for source in first if first[source] == second[source]] == []


def test_a_fork_has_the_threads_that_its_environment_says_and_no_gpu_is_in_use(
    probe: Probe, served: dict[str, str]
) -> None:
    assert probe.run("threads", **served, OMP_NUM_THREADS="3")[1] == "3 {3} False\n"


@pytest.mark.parametrize("differs", [{"HF_HOME": "elsewhere"}, {"OMP_NUM_THREADS": "2,1"}, {"PYTHONHASHSEED": "1"}])
def test_with_settings_that_a_library_may_read_at_its_import_it_starts_as_it_is(
    probe: Probe, served: dict[str, str], differs: dict[str, str]
) -> None:
    assert probe.run("libraries", **served, **differs)[1] == COLD


def test_a_signal_reaches_the_stage_once_and_its_end_is_waited_for(probe: Probe, served: dict[str, str]) -> None:
    process, stage, _ = probe.began(**served)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "interrupted\n"
    assert process.returncode == 130
    assert not stage.is_running()


def test_a_stage_that_nobody_waits_for_is_ended(probe: Probe, served: dict[str, str]) -> None:
    process, stage, keeper = probe.began(**served)
    process.kill()
    psutil.wait_procs([stage, keeper])
    assert process.communicate()[0] == "interrupted\n"


def test_a_stage_whose_keeper_is_lost_is_ended_and_says_so(probe: Probe, served: dict[str, str]) -> None:
    process, stage, keeper = probe.began(**served)
    keeper.kill()
    assert process.communicate()[1] == "error: A stage's process was lost.\n  what to do: Run again.\n"
    assert process.returncode == 1
    psutil.wait_procs([stage])


def test_where_the_server_is_lost_a_stage_starts_as_it_is(probe: Probe) -> None:
    before = psutil.Process().children()
    with warm.serve_stages(probe.cold) as variables:
        (server,) = (process for process in psutil.Process().children() if process not in before)
        server.kill()
        psutil.wait_procs([server])
        assert probe.run("libraries", **variables)[1] == COLD


def test_where_the_server_ends_before_it_has_read_what_is_asked_a_stage_starts_as_it_is(probe: Probe) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        process = probe.start("libraries", **{warm.VARIABLE: f"{folder}/socket"})
        connection = listener.accept()[0]
        connection.recv(1)
        while not connection.recv(1 << 20, socket.MSG_PEEK).endswith(b"\n"):
            time.sleep(0.02)
        connection.close()
        assert process.communicate() == (COLD, "")
    assert process.returncode == 0


def test_how_a_stage_ended_is_heard_though_its_keeper_left_a_signal_unread() -> None:
    here, there = socket.socketpair()
    with here:
        here.send(bytes([signal.SIGINT]))
        there.send(b"130")
        there.close()
        assert [warm._read(here, 8) for _ in range(2)] == [b"130", b""]  # noqa: SLF001


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ("import json", ""),
        ("import ctypes; ctypes.CDLL('{driver}')", ""),
        ("import opendp.prelude", "['opendp']"),
        ("import palimpsest", "palimpsest"),
        ("warm._DEVICES = '/dev/fu'; device = open('/dev/full')", "['/dev/full']"),
    ],
)
def test_a_server_that_holds_what_no_fork_may_share_does_not_serve(tmp_path: Path, held: str, told: str) -> None:
    driver = shutil.copy(_psutil_linux.__file__, tmp_path / "libcuda.so.1")  # a GPU's: torch maps it unused
    place = [str(Path(warm.__file__).parent)]
    code = f"import sys; sys.path += {place}; import warm; {held.format(driver=driver)}; warm._require_fit()"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (told == "")
    assert told in done.stderr.rpartition("RuntimeError")[2]
