"""What InvisibleInk's package `invink` writes per second: one line of JSON, to set beside our own figures.

`invink` is under the GPL-3, so it is only run, in an environment of its own, and nothing else here imports it. Release
0.1.0 cannot be parsed before Python 3.12. Make the environment outside the repository, with the same torch and
transformers as ours, from the root of the repository:

    python3.12 -m venv ../peer
    ../peer/bin/pip install --constraint constraints.txt invink==0.1.0

    ../peer/bin/python bench/peer_invink.py --model MODEL --texts TEXTS --batch-size 8 --tokens 64 --examples 10

MODEL is a folder with a causal language model and its tokenizer, TEXTS JSON lines with a "text" each (.gz or not). An
example is one synthetic text of `--tokens` tokens; each of its tokens is drawn from `--batch-size` private contexts and
one public context, the rows of one forward pass of the peer's. `seconds` is CPU time on one thread, as in
`generation.py`, and the wall clock's on several or on a GPU; `wall_seconds` is always the wall clock's.

What is in the peer's favour: float32 and the whole batch in one forward pass; short prompts, a sentence and the private
text; the first example warms up and is not counted; neither is loading the model, finding the clipping bound, nor the
peer's account of what each example spent, a search in pure Python (a few tenths of a second). Texts never end
early: a copy of the model's folder names a token as EOS that does not exist.

Feeds docs/performance.md, by `bench/prediction.py speed --peer`.
"""

import argparse
import gzip
import importlib
import importlib.metadata
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import torch

PEER = "invink"
DESCRIPTION = "A sentence from a movie review."
PUBLIC_PROMPT = "{}\n"  # the peer puts DESCRIPTION here
PRIVATE_PROMPT = "{}\n{}\n"  # DESCRIPTION and a private text
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
WARMING = 1  # examples before the clock starts


@dataclass
class Clock:
    """Time spent while running, in seconds: `wall` as it passed, `cpu` as this process used it."""

    wall: float = 0.0
    cpu: float = 0.0
    _since: tuple[float, float] | None = field(default=None, repr=False)

    def start(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        if self._since is None:
            return
        wall, cpu = self._since
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        self._since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what happens here; a clock that stands still stays so."""
        running = self._since is not None
        self.stop()
        yield
        if running:
            self.start()

    def examples(self, numbers: Iterable[int]) -> Iterator[int]:
        """The peer's loop over its examples, running from the first one that counts until the last one is done."""
        for number in numbers:
            if number == WARMING:
                self.start()
            yield number
        self.stop()


def read_texts(path: Path, count: int) -> list[str]:
    """The first texts that are not blank, for the peer would skip those."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        texts = [text for line in lines if (text := json.loads(line)["text"]).strip()]
    if len(texts) < count:
        raise SystemExit(f"{len(texts)} texts, {count} needed: give more texts, fewer examples or a smaller batch.")
    return texts[:count]


def prepare(model: Path, folder: Path) -> None:
    """Fill a folder with the model as the peer needs it: a chat template that adds nothing, and no EOS."""
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    vocabulary = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    settings = model / "generation_config.json"
    known = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    replace_file(folder / settings.name, json.dumps({**known, "eos_token_id": vocabulary}))
    replace_file(folder / "chat_template.jinja", PLAIN_TEMPLATE)


def replace_file(path: Path, content: str) -> None:
    """Write beside the model's own file, not through the link to it."""
    path.unlink(missing_ok=True)
    path.write_text(content, encoding="utf-8")


def timed_peer(clock: Clock) -> Any:
    """The peer's module, whose loop over examples runs the clock and whose accounting stops it."""
    peer: Any = importlib.import_module(f"{PEER}.generate")
    account = peer.get_epsilon

    @wraps(account)
    def untimed(*args: Any, **kwargs: Any) -> Any:
        with clock.paused():
            return account(*args, **kwargs)

    peer.tqdm = clock.examples
    peer.get_epsilon = untimed
    return peer


def write(peer: Any, model: Path, texts: list[str], contexts: int, tokens: int, examples: int) -> list[int]:
    """Let the peer write; the number of tokens of each example. What it prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        output = peer.generate(
            texts,
            str(model),
            DESCRIPTION,
            system_prompt="",
            pub_prompt=PUBLIC_PROMPT,
            prv_prompt=PRIVATE_PROMPT,
            batch_size=contexts + 1,  # the peer counts the public context too
            num=examples,
            max_toks=tokens,
            dtype="float32",
            device_map=0 if torch.cuda.is_available() else -1,  # the first GPU, or the CPU
            allow_download=False,
            trust_remote_code=False,
        )
    return list(output.lens)


def measure(model: Path, texts: Path, contexts: int, tokens: int, examples: int) -> dict[str, object]:
    total = examples + WARMING
    clock = Clock()
    private = read_texts(texts, total * contexts)
    with tempfile.TemporaryDirectory() as folder:
        prepare(model, Path(folder))
        lengths = write(timed_peer(clock), Path(folder), private, contexts, tokens, total)
    if lengths != [tokens] * total:
        raise SystemExit(f"Examples of {sorted(set(lengths))} tokens, not {tokens}: the speeds cannot be compared.")
    drawn = examples * tokens
    threads = torch.get_num_threads()
    seconds = clock.cpu if threads == 1 and not torch.cuda.is_available() else clock.wall
    return {
        "peer": PEER,
        "version": importlib.metadata.version(PEER),
        "batch_size": contexts,
        "tokens": drawn,
        "seconds": seconds,
        "tokens_per_second": drawn / seconds,
        "threads": threads,
        "wall_seconds": clock.wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a causal language model")
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with a text each")
    parser.add_argument("--batch-size", type=int, default=8, help="private contexts of each token")
    parser.add_argument("--tokens", type=int, default=64, help="of each example")
    parser.add_argument("--examples", type=int, default=10, help="measured, after one that warms up")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = measure(options.model, options.texts, options.batch_size, options.tokens, options.examples)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
