"""`palimpsest keys new`: the key that signs releases."""

from pathlib import Path

from palimpsest.report.release.keys import fingerprint, key_path, load_key, new_key


def make_key(path: Path | None, *, keep: bool = False) -> None:
    """Make a key where there is none, and print its place and its fingerprint.

    Args:
        path: where it goes; None: its usual place.
        keep: whether a key that is there stays, and is shown.

    Raises:
        DataError: there is a file already, or the place lies in a workspace.
    """
    place = key_path(path)
    name = fingerprint(load_key(place).public_key()) if keep and place.is_file() else new_key(place)
    print(f"key: {place}\nfingerprint: {name}")
    print("Keep the file to yourself, and tell the fingerprint to those who will check your releases.")
