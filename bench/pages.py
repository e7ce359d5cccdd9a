"""The code blocks of the pages, as the tests run them and as notebooks show them."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from itertools import dropwhile, groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"  # each names commands of its own time
SHELLS = ("bash", "console")
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<note>not run|first): (?P<said>.*?) -->\n+)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A code block of a page."""

    place: str  # page and line
    language: str  # what stands behind its fence
    code: str  # what stands in it
    why_not: str | None  # why no test runs it, from the comment `<!-- not run: WHY -->` above it
    first: str | None  # what a reader does before it by hand, from the comment `<!-- first: COMMAND -->` above it

    @property
    def script(self) -> str:
        """What a shell would run: all of a `bash` block, the lines behind `$` of a `console` block."""
        if self.language != "console":
            return self.code
        asked = re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*\n)", self.code, re.MULTILINE)
        return "".join(re.sub(r"\n> ", "\n", each) for each in asked)


def pages() -> list[Path]:
    """README.md and every page of docs that says how things are now."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in found if RESULTS not in page.parents)]


def fences(text: str) -> Iterator[re.Match[str]]:
    """The fenced blocks of a text: `language`, `code`, and what a comment above says (`note`, `said`)."""
    return _FENCE.finditer(text)


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in their order."""
    return blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


def blocks_of(text: str, name: str) -> Iterator[Block]:
    """The blocks of a text, in their order, with the name of its page in their places."""
    for match in fences(text):
        line = text.count("\n", 0, match.start("language")) + 1
        notes, code = {match["note"]: match["said"]}, textwrap.dedent(match["code"])
        yield Block(f"{name}:{line}", match["language"], code, notes.get("not run"), notes.get("first"))


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each call of `palimpsest` in it, without what stands before the call and what it is piped to."""
    code = block.script if block.language in SHELLS else block.code
    for line in code.replace("\\\n", " ").splitlines():
        if "palimpsest " in line:
            for ours, words in groupby(
                _words(re.sub(r"^\s*(- )?(\w+: )?", "", line)), lambda word: word[0] not in "|;&<>()"
            ):
                called = list(dropwhile(lambda word: re.match(r"\w+=", word), words))
                if ours and called[:1] == ["palimpsest"]:
                    yield called[1:]


def _words(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(words)
