"""Stores answers, so that a stopped run continues where it was and pays for nothing twice.

An endpoint's key is in no file of a workspace: it comes from the environment, or from the system's keyring.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from palimpsest.errors import BackendError
from palimpsest.models.chat.base import Answer, Ask, Book, digest
from palimpsest.models.chat.endpoint import EndpointChat
from palimpsest.models.chat.local import LocalChat, load_chat
from palimpsest.models.chat.settings import Connection, Endpoint, LocalChatSettings
from palimpsest.records.vouched import fingerprint_of

_SERVICE = "palimpsest"  # what the keyring has keys under


def open_chat(settings: LocalChatSettings | Endpoint, path: Path, seed: int, folder: Path | None = None) -> "KeptChat":
    """Open the model that the settings name; its answers, and an endpoint's cost so far, are kept in a file.

    Args:
        path: the variant's own SQLite file.
        folder: the local model's folder; an endpoint has none.

    Raises:
        BackendError: the endpoint's key is not found.
        ModelError: the model cannot be loaded, or the client for endpoints is not installed.
        DataError: the file is not such a database.
    """
    if isinstance(settings, Endpoint):
        return open_endpoint(settings, path, f"{settings.url} {settings.model} {seed}")
    assert folder is not None
    return KeptChat(load_chat(folder, settings.batch, seed), path, f"{fingerprint_of(folder)} {seed}")


def open_endpoint(settings: Connection, path: Path, model_id: str) -> "KeptChat":
    """Open the model at an endpoint, as `open_chat`; `model_id` is all that an answer depends on besides the ask."""
    return KeptChat(EndpointChat(settings, endpoint_key(settings.key), book=path), path, model_id)


def endpoint_key(variable: str | None) -> str | None:
    """Return the value of an environment variable; where that is not set, the keyring's entry of that name.

    None where `variable` is None: the endpoint needs no key.

    Raises:
        BackendError: neither has it, or no request can carry it.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip() or _read_keyring(variable)
    if not key:
        raise BackendError(
            f"The environment variable {variable!r}, which should hold the endpoint's key, is not set.",
            f"Set it where you run palimpsest, keep it by `keyring set {_SERVICE} {variable}` with palimpsest[keyring] "
            "installed, or name another variable; null where the endpoint needs no key.",
        )
    if not (key.isascii() and key.isprintable()):
        raise BackendError(
            f"The endpoint's key in {variable!r} has letters that no request can carry.",
            "Copy the key again, without quotation marks or spaces around it.",
        )
    return key


def _read_keyring(name: str) -> str | None:
    """Return the keyring's entry; None where there is no keyring, or it cannot be opened."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(_SERVICE, name)
    except KeyringError:
        return None


class KeptChat:
    """Asks another model only what it has not answered before; equal asks share one answer.

    Each answer is on disk before the next is waited for. A failed one is not kept: the next run asks again.
    """

    def __init__(self, inner: EndpointChat | LocalChat, path: Path, model_id: str) -> None:
        """Open or make the file.

        Args:
            path: a SQLite file; one for each variant, since it also counts what is spent.
            model_id: all that an answer depends on besides the ask: the model, its seed.

        Raises:
            DataError: the file is not such a database.
        """
        self._inner, self._book, self._model_id = inner, Book(path), model_id

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """Return the answers, in order; what was answered before is not asked again."""
        keys = [digest(self._model_id, ask) for ask in asks]
        answers = {key: answer for key in dict.fromkeys(keys) if (answer := self._book.find(key)) is not None}
        missing = {key: ask for key, ask in zip(keys, asks, strict=True) if key not in answers}
        names = list(missing)
        fresh = self._inner.answer(list(missing.values()), lambda place, answer: self._keep(names[place], answer))
        answers |= dict(zip(names, fresh, strict=True))
        return [answers[key] for key in keys]

    def _keep(self, key: str, answer: Answer) -> None:
        if answer.finish != "failed":
            self._book.keep(key, answer)
