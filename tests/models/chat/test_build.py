"""Settings become a model that answers and keeps its answers."""

from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from palimpsest.errors import BackendError, ModelError
from palimpsest.models.chat.kept import endpoint_key, open_chat
from palimpsest.models.chat.local import LocalChat, load_chat
from palimpsest.models.chat.settings import LocalChatSettings
from tests.models.chat import tiny
from tests.models.chat.asked import LENGTH, PROMPTS, ask, endpoint
from tests.models.chat.server import echo, serving


def settings_of(folder: Path) -> LocalChatSettings:
    body = {"kind": "local", "model": str(folder), "batch": 2, "temperature": 1.0, "top_p": 1.0, "tries": 1}
    return LocalChatSettings.model_validate(body | {"prompts": PROMPTS, "length": LENGTH})


def test_an_endpoint_is_sent_the_key_of_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk-mine\n")
    with serving(echo) as there:
        for _ in range(2):
            assert open_chat(endpoint(there.url, key="MY_KEY"), tmp_path / "a.db", 1).answer([ask()])[0].text
        assert [seen.headers["authorization"] for seen in there.seen] == ["Bearer sk-mine"]
        open_chat(endpoint(there.url, key="MY_KEY"), tmp_path / "a.db", 2).answer([ask()])
        assert len(there.seen) == 2


class Kept(KeyringBackend):
    """A keyring in memory, which somebody has opened or nobody."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.kept = True, dict[tuple[str, str], str]()

    def get_password(self, service: str, username: str) -> str | None:
        if not self.opened:
            raise KeyringLocked
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


def test_a_key_that_no_variable_has_is_that_of_the_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = Kept()
    monkeypatch.setattr(keyring.core, "_keyring_backend", kept)
    monkeypatch.delenv("MY_KEY", raising=False)
    for service in ("palimpsest", "other"):
        keyring.set_password(service, "MY_KEY", f"sk-{service}")
    assert endpoint_key("MY_KEY") == "sk-palimpsest"
    kept.opened = False
    for variable in ("MY_KEY", "MY_OTHER_KEY"):
        with pytest.raises(BackendError, match=f"keyring set palimpsest {variable}"):
            endpoint_key(variable)
    monkeypatch.setenv("MY_KEY", "sk-mine")
    assert endpoint_key("MY_KEY") == "sk-mine"


def test_an_endpoints_budget_counts_what_earlier_attempts_have_spent(tmp_path: Path):
    with serving(echo) as there:
        settings = endpoint(there.url, most_tokens=200)
        with pytest.raises(BackendError, match="budget"):
            open_chat(settings, tmp_path / "a.db", 1).answer([ask(number=number) for number in range(50)])
        sent = len(there.seen)
        with pytest.raises(BackendError, match="budget"):
            open_chat(settings, tmp_path / "a.db", 1).answer([ask(number=99)])
    assert len(there.seen) == sent > 0


def test_a_key_that_no_request_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk\N{EN DASH}mine")
    with pytest.raises(BackendError, match="MY_KEY") as refused:
        endpoint_key("MY_KEY")
    assert "mine" not in refused.value.problem


def test_another_server_is_asked_though_its_model_has_the_same_name(tmp_path: Path):
    with serving(echo) as one, serving(echo) as other:
        for there in (one, other, one):
            open_chat(endpoint(there.url), tmp_path / "a.db", 1).answer([ask()])
        assert (len(one.seen), len(other.seen)) == (1, 1)


@pytest.mark.parametrize("value", [None, "", " "])
def test_a_key_that_is_not_set_says_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(BackendError, match="MY_KEY"):
        open_chat(endpoint("http://127.0.0.1:9/v1", key="MY_KEY"), tmp_path / "a.db", 1)


def test_a_local_model_answers_under_its_seed_and_anew_when_its_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, path = tiny.save(tmp_path / "model"), tmp_path / "a.db"
    asks = tiny.asks(3)
    talk = open_chat(settings_of(folder), path, 1, folder)
    assert talk.answer(asks) == load_chat(folder, 2, 1).answer(asks)
    other = open_chat(settings_of(folder), path, 2, folder)
    assert talk.answer(asks) != other.answer(asks)
    same = open_chat(settings_of(folder), path, 1, folder)
    with monkeypatch.context() as patch:
        patch.setattr(LocalChat, "_answer", lambda self, prompts: pytest.fail("It was asked again."))
        assert same.answer(asks) == talk.answer(asks)
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    anew = open_chat(settings_of(folder), path, 1, folder)
    assert anew.answer(asks) != talk.answer(asks)


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(ModelError):
        open_chat(settings_of(tmp_path), tmp_path / "a.db", 1, tmp_path)
