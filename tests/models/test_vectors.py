"""Kept vectors: each text encoded once, whoever stopped, wrote beside us or broke a file meanwhile."""

import multiprocessing
import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import ModelError
from palimpsest.models import vectors as module
from palimpsest.models.vectors import KeptVectors
from palimpsest.records.vouched import fingerprint_of

WIDTH = 3
TEXTS = [f"text {number}" for number in range(10)]


def vector_of(text: str) -> list[float]:
    """Every text its own vector, of whole numbers."""
    return [float(len(text)), float(sum(map(ord, text))), float(ord(text[-1]) if text else -1)]


class Stopped(Exception):
    """What ends an encode in the middle."""


class Counted:
    """An encoder that notes what it was asked for."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.batches: list[list[str]] = []
        self.stop_after = stop_after

    def __call__(self, texts: list[str]) -> np.ndarray:
        if len(self.batches) == self.stop_after:
            raise Stopped
        self.batches.append(texts)
        return np.array([vector_of(text) for text in texts], dtype=np.float32)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]


def kept(folder: Path, encoder: Callable[[list[str]], np.ndarray], **changed: object) -> KeptVectors:
    return KeptVectors(**{
        "encode_batch": encoder, "dimension": WIDTH, "folder": folder / "kept", "fingerprint": "one", "batch": 2,
        **changed,
    })  # fmt: skip


def right(vectors: np.ndarray, texts: list[str]) -> bool:
    expected = np.array([vector_of(text) for text in texts], dtype=np.float32).reshape(-1, WIDTH)
    return vectors.dtype == np.float32 and np.array_equal(vectors, expected)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "kept").glob("*"))


# Once.


def test_a_text_is_encoded_once_in_a_call_in_a_process_and_after_it(tmp_path):
    encoder, texts = Counted(), [*TEXTS, *TEXTS[::-1], "", TEXTS[0]]
    encode = kept(tmp_path, encoder)
    assert right(encode(texts), texts)
    assert sorted(encoder.texts) == sorted({*TEXTS, ""})
    assert right(encode(texts[3:7]), texts[3:7])
    assert right(kept(tmp_path, encoder)([*texts, "new"]), [*texts, "new"])
    assert sorted(encoder.texts) == sorted({*TEXTS, "", "new"})


@settings(deadline=None, max_examples=50)
@given(calls=st.lists(st.lists(st.text(max_size=3), max_size=9), max_size=5), again=st.booleans())
def test_every_call_is_answered_in_its_order(tmp_path_factory, calls, again):
    folder, encoder = tmp_path_factory.mktemp("folder"), Counted()
    encode = kept(folder, encoder)
    for texts in calls:
        encode = kept(folder, encoder) if again else encode
        assert right(encode(texts), texts)
    assert len(encoder.texts) == len({text for texts in calls for text in texts})


def test_no_text_needs_no_encoder_and_no_folder(tmp_path):
    assert kept(tmp_path, Counted(0))([]).shape == (0, WIDTH)
    assert not (tmp_path / "kept").exists()


def test_texts_that_cannot_be_written_are_texts(tmp_path):
    odd = ["\ud800", "\udfff", "\0", "\ud800\0"]
    encode = kept(tmp_path, Counted())
    assert right(encode(odd), odd)


def test_texts_of_similar_length_go_together_and_a_batch_of_one_is_one_text(tmp_path):
    texts = ["aaaa", "b", "cccc", "d", "eeeeeee"]
    pairs, single = Counted(), Counted()
    kept(tmp_path, pairs)(texts)
    assert [{len(text) for text in batch} for batch in pairs.batches] == [{1}, {4}, {7}]
    kept(tmp_path, single, batch=1, fingerprint="other")(texts)
    assert [len(batch) for batch in single.batches] == [1] * 5


def test_the_answer_is_the_callers_to_change(tmp_path):
    encode = kept(tmp_path, Counted())
    encode(TEXTS)[:] = 0
    assert right(encode(TEXTS), TEXTS)


# Whose.


@pytest.mark.parametrize(("other", "width"), [({"fingerprint": "two"}, 3), ({"dimension": 2}, 2)])
def test_another_encoder_finds_nothing(tmp_path, other, width):
    kept(tmp_path, Counted())(TEXTS)
    encoder = Counted()
    answer = kept(tmp_path, lambda texts: encoder(texts)[:, :width], **other)(TEXTS)
    assert answer.shape == (len(TEXTS), width)
    assert len(encoder.texts) == len(TEXTS)
    assert right(kept(tmp_path, Counted(0))(TEXTS), TEXTS)  # and the first still finds its own


def test_what_was_encoded_together_is_not_taken_for_what_is_encoded_alone(tmp_path):
    def coupled(texts: list[str]) -> np.ndarray:
        return Counted()(texts) + (len(texts) - 1)

    assert not right(kept(tmp_path, coupled, batch=5)(TEXTS), TEXTS)
    assert right(kept(tmp_path, coupled, batch=1)(TEXTS), TEXTS)
    kept(tmp_path, coupled, batch=1)(["alone"])
    assert right(kept(tmp_path, Counted(0), batch=5)(["alone"]), ["alone"])


def test_nobody_else_may_read(tmp_path):
    kept(tmp_path, Counted())(TEXTS)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(tmp_path)} == {0o600}


def test_no_text_is_written(tmp_path):
    kept(tmp_path, Counted())(["the order number is 8812-XK"])
    assert not any(b"8812" in path.read_bytes() for path in files(tmp_path))


# Stopped, broken, beside each other.


def test_a_stopped_encode_goes_on_behind_its_last_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SEGMENT", 4)
    first, second = Counted(stop_after=3), Counted()
    with pytest.raises(Stopped):
        kept(tmp_path, first)(TEXTS)
    assert len(files(tmp_path)) == 1
    assert right(kept(tmp_path, second)(TEXTS), TEXTS)
    assert second.texts == TEXTS[4:]


def killed(folder: Path) -> None:
    """What a process does that is killed while it encodes."""
    module._SEGMENT = 4  # noqa: SLF001

    def encode(texts: list[str]) -> np.ndarray:
        if "text 8" in texts or "text 9" in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        return Counted()(texts)

    kept(folder, encode)(TEXTS)


def test_a_killed_process_leaves_whole_files(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=killed, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    encoder = Counted()
    assert right(kept(tmp_path, encoder)(TEXTS), TEXTS)
    assert encoder.texts == TEXTS[8:]


def ended(work: Callable[..., None], *args: object) -> None:
    """Work, and end at once: what other tests left to be done at exit is not this process's."""
    work(*args)
    os._exit(0)


def without_room(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # bytes
    with pytest.raises(OSError, match="File too large"):
        kept(folder, Counted())(TEXTS)


def test_a_file_that_there_is_no_room_for_is_not_left(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=ended, args=(without_room, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert files(tmp_path) == []


def written(folder: Path, first: int) -> None:
    encode = kept(folder, Counted())
    for start in range(first, first + 40):
        texts = [f"text {number}" for number in range(start, start + 5)]
        assert right(encode(texts), texts)


def test_processes_write_into_one_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    team = [context.Process(target=ended, args=(written, tmp_path, first)) for first in (0, 10, 20, 30)]
    for process in team:
        process.start()
    for process in team:
        process.join()
    assert [process.exitcode for process in team] == [0] * 4
    texts = [f"text {number}" for number in range(74)]
    assert right(kept(tmp_path, Counted(0))(texts), texts)
    assert {path.suffix for path in files(tmp_path)} == {".vectors"}  # no draft is left


# Many small files.


@pytest.fixture
def few(monkeypatch) -> None:
    """More than three small files become one; a file of eight texts is no small one."""
    monkeypatch.setattr(module, "_SMALL_FILES", 3)
    monkeypatch.setattr(module, "_SEGMENT", 8)


@pytest.mark.usefixtures("few")
def test_small_files_become_one_and_every_vector_stays_what_it_was(tmp_path):
    encode, other = kept(tmp_path, Counted()), kept(tmp_path, Counted())
    for text in TEXTS[:4]:
        other([text])  # holds the files open that are merged below
        assert right(encode(TEXTS[:4]), TEXTS[:4])
    for text in TEXTS[4:]:
        encode([text])
        assert len(files(tmp_path)) <= 4
    assert right(kept(tmp_path, Counted(0))(TEXTS), TEXTS)
    assert right(encode(TEXTS), TEXTS)
    assert right(kept(tmp_path, Counted(0))(TEXTS[:4]), TEXTS[:4])


@pytest.mark.usefixtures("few")
def test_of_two_vectors_the_older_stays_where_files_become_one(tmp_path):
    kept(tmp_path, lambda texts: np.full((len(texts), WIDTH), 1.0))(["text"])
    aside = tmp_path / files(tmp_path)[0].name
    files(tmp_path)[0].rename(aside)
    kept(tmp_path, lambda texts: np.full((len(texts), WIDTH), 2.0))(["text"])
    aside.rename(tmp_path / "kept" / aside.name)
    for text in TEXTS[:2]:
        kept(tmp_path, Counted())([text])
    assert len(files(tmp_path)) == 1
    assert kept(tmp_path, Counted(0))(["text"])[0, 0] == 1.0


@pytest.mark.usefixtures("few")
def test_only_files_of_one_kind_become_one(tmp_path):
    """What was encoded together never turns into what was encoded alone, nor one encoder's vectors into another's."""

    def wrong(texts: list[str]) -> np.ndarray:
        return np.full((len(texts), WIDTH), 7.0)

    kinds: dict[str, dict[str, object]] = {"two": {"batch": 1, "fingerprint": "two"}, "together": {}}
    encoder, texts = Counted(), [f"{which} {number}" for which in kinds for number in range(3)]
    for text in texts:
        kept(tmp_path, wrong, **kinds[text.partition(" ")[0]])([text])
    for text in TEXTS:
        kept(tmp_path, Counted(), batch=1)([text])
    assert right(kept(tmp_path, encoder, batch=1)(texts), texts)
    assert sorted(encoder.texts) == sorted(texts)
    assert right(kept(tmp_path, Counted(0), batch=1)(TEXTS), TEXTS)


def merging(folder: Path, first: int, stop: int) -> None:
    """A process that keeps many small files; it is killed when it has deleted `stop` of them."""
    module._SMALL_FILES, module._SEGMENT = 3, 8  # noqa: SLF001
    unlink, deleted = Path.unlink, []

    def counted(path: Path, missing_ok: bool = False) -> None:
        deleted.append(path)
        unlink(path, missing_ok)
        if len(deleted) == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    Path.unlink = counted
    written(folder, first)


def test_processes_that_merge_may_be_killed_and_nothing_is_lost(tmp_path):
    context = multiprocessing.get_context("fork")
    stops = (2, 9, 0, 0)
    team = [context.Process(target=ended, args=(merging, tmp_path, 10 * n, stop)) for n, stop in enumerate(stops)]
    for process in team:
        process.start()
    for process in team:
        process.join()
    assert [process.exitcode for process in team] == [-signal.SIGKILL, -signal.SIGKILL, 0, 0]
    texts = [f"text {number}" for number in range(20, 74)]
    assert right(kept(tmp_path, Counted(0))(texts), texts)
    assert len(files(tmp_path)) < 40


def test_what_another_process_has_encoded_meanwhile_is_found(tmp_path):
    encoder = Counted()
    encode = kept(tmp_path, encoder)
    encode(TEXTS[:2])
    kept(tmp_path, Counted())(TEXTS)
    assert right(encode(TEXTS), TEXTS)
    assert encoder.texts == TEXTS[:2]


def test_of_two_vectors_the_older_stays(tmp_path):
    kept(tmp_path, lambda texts: np.full((len(texts), WIDTH), 1.0))(["text"])
    first = files(tmp_path)[0]
    first.rename(tmp_path / first.name)
    kept(tmp_path, lambda texts: np.full((len(texts), WIDTH), 2.0))(["text"])
    running = kept(tmp_path, Counted(0))
    assert running(["text"])[0, 0] == 2.0
    (tmp_path / first.name).rename(first)
    assert kept(tmp_path, Counted(0))(["text"])[0, 0] == 1.0
    kept(tmp_path, Counted())(["more"])
    running(["text", "more"])  # reads the older file, too
    assert running(["text"])[0, 0] == 2.0  # what a process was once told stays


def short(content: bytes) -> bytes:
    return content[:-1]


def longer(content: bytes) -> bytes:
    return content + b"\0"


def empty(content: bytes) -> bytes:
    return b""


def header_only(content: bytes) -> bytes:
    return content[:64]


def half_header(content: bytes) -> bytes:
    return content[:20]


def other_keys(content: bytes) -> bytes:
    return content[:70] + bytes([content[70] ^ 1]) + content[71:]


def more_counted(content: bytes) -> bytes:
    return content[:56] + bytes([content[56] + 1]) + content[57:]


def foreign(content: bytes) -> bytes:
    return b"x" * len(content)


@pytest.mark.parametrize("broken", [short, longer, empty, header_only, half_header, other_keys, more_counted, foreign])
def test_a_broken_file_is_passed_over(tmp_path, broken):
    kept(tmp_path, Counted())(TEXTS)
    [path] = files(tmp_path)
    path.write_bytes(broken(path.read_bytes()))
    encoder = Counted()
    assert right(kept(tmp_path, encoder)(TEXTS), TEXTS)
    assert sorted(encoder.texts) == sorted(TEXTS)


def test_other_things_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "kept" / "a folder.vectors").mkdir(parents=True)
    (tmp_path / "kept" / ".draft.vectors.part").write_bytes(b"half")
    assert right(kept(tmp_path, Counted())(TEXTS), TEXTS)
    assert len(files(tmp_path)) == 3


# What an encoder may get wrong.


def test_a_vector_that_is_not_finite_is_told_and_not_kept(tmp_path):
    bad = [TEXTS[3], TEXTS[4]]

    def failing(texts: list[str]) -> np.ndarray:
        vectors = Counted()(texts)
        vectors[[text in bad for text in texts], 1] = np.inf
        return vectors

    encode, encoder = kept(tmp_path, failing), Counted()
    answer = encode([*TEXTS, bad[0]])
    assert np.isnan(answer[[3, 4, 10]]).all()
    assert right(np.delete(answer, [3, 4, 10], axis=0), [*TEXTS[:3], *TEXTS[5:]])
    assert right(kept(tmp_path, encoder)(TEXTS), TEXTS)
    assert sorted(encoder.texts) == bad


def test_an_encoder_that_always_fails_leaves_no_file(tmp_path):
    assert np.isnan(kept(tmp_path, lambda texts: np.full((len(texts), WIDTH), np.nan))(TEXTS)).all()
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("shape", [(2, WIDTH + 1), (1, WIDTH), (2,)])
def test_vectors_of_another_shape_are_refused(tmp_path, shape):
    with pytest.raises(ModelError, match="one vector of 3 numbers"):
        kept(tmp_path, lambda texts: np.zeros(shape))(TEXTS)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("wrong", ["dimension", "batch"])
def test_senseless_numbers_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=f"{wrong} must be > 0"):
        kept(tmp_path, Counted(), **{wrong: 0})


def test_nothing_is_said_of_what_is_encoded(tmp_path, capsys):
    kept(tmp_path, Counted())(TEXTS[:4])
    kept(tmp_path, Counted())(TEXTS)
    assert capsys.readouterr() == ("", "")


# Fingerprints.


def model(folder: Path, **contents: str) -> Path:
    for name, content in {"model.safetensors": "weights", "pooling/config.json": "{}", **contents}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def test_a_fingerprint_is_of_the_content_not_of_the_place(tmp_path):
    assert fingerprint_of(model(tmp_path / "a")) == fingerprint_of(model(tmp_path / "b" / "c", **{"README.md": "new"}))
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "model.safetensors").symlink_to(tmp_path / "a" / "model.safetensors")  # as a hub's cache does
    (linked / "pooling").mkdir()
    (linked / "pooling" / "config.json").symlink_to(tmp_path / "a" / "pooling" / "config.json")
    assert fingerprint_of(linked) == fingerprint_of(tmp_path / "a")


@pytest.mark.parametrize(
    "changed",
    [{"model.safetensors": "others"}, {"pooling/config.json": "{1}"}, {"vocab.txt": ""}, {"config.json": "{}"}],
)
def test_a_fingerprint_tells_encoders_apart(tmp_path, changed):
    assert fingerprint_of(model(tmp_path / "a")) != fingerprint_of(model(tmp_path / "b", **changed))


def test_a_fingerprint_tells_names_apart(tmp_path):
    one, other = (model(tmp_path / name, **{name: "x"}) for name in ("vocab.txt", "words.txt"))
    assert fingerprint_of(one) != fingerprint_of(other)


def test_a_folder_without_a_model_has_no_fingerprint(tmp_path):
    with pytest.raises(ModelError, match="holds no model"):
        fingerprint_of(tmp_path)
