"""From settings to a model that answers, with what it has answered before."""

import os
from pathlib import Path

from palimpsest.errors import BackendError
from palimpsest.models.chat.endpoint import EndpointChat
from palimpsest.models.chat.kept import KeptChat
from palimpsest.models.chat.local import load_chat
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.records.vouched import fingerprint_of


def open_chat(settings: LocalChatSettings | Endpoint, path: Path, seed: int, folder: Path | None = None) -> KeptChat:
    """The model that the settings name; its answers, and what an endpoint has cost, are kept in a file.

    Args:
        path: the variant's own SQLite file.
        seed: public.
        folder: of the local model; an endpoint has none.

    Raises:
        BackendError: the environment variable of the endpoint's key is not set.
        ModelError: the model cannot be loaded, or the client for endpoints is not installed.
        DataError: the file is no such database.
    """
    if isinstance(settings, Endpoint):
        chat = EndpointChat(settings, _key(settings.key), book=path)
        return KeptChat(chat, path, f"{settings.model} {seed}")
    assert folder is not None
    return KeptChat(load_chat(folder, settings.batch, seed), path, f"{fingerprint_of(folder)} {seed}")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise BackendError(
            f"The environment variable {variable!r}, which should hold the endpoint's key, is not set.",
            "Set it where you run palimpsest, or name another variable; null where the endpoint needs no key.",
        )
    return key
