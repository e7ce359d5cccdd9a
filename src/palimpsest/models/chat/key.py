"""An endpoint's key, which stands in no file of a workspace: from the environment, or from the system's keyring."""

import os

from palimpsest.errors import BackendError

_SERVICE = "palimpsest"  # what the keyring has keys under


def endpoint_key(variable: str | None) -> str | None:
    """The value of an environment variable; where that is not set, what the keyring keeps under its name.

    None where `variable` is None: the endpoint needs no key.

    Raises:
        BackendError: neither has it, or no request can carry it.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip() or _kept(variable)
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


def _kept(name: str) -> str | None:
    """What the keyring has; None where there is no keyring, or nobody to open it."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(_SERVICE, name)
    except KeyringError:
        return None
