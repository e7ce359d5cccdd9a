"""The page of presets, rendered from their declarations."""

from collections.abc import Iterable, Iterator

from palimpsest.params.preset import ALWAYS, Entry, Preset, Worked, presets
from palimpsest.params.text import flow

_HEAD = """# Presets

A preset is the settings of one paper, over all of its methods. This page is rendered from the declarations that
`palimpsest init --preset` applies, so that it says what a workspace gets. `palimpsest plan` says what each row costs.

```bash
palimpsest init tickets.csv --text body --label team --labels returns,workshop,helpline --public public.csv \\
  --rows-about 5000 --preset paper-000 --workspace tickets
palimpsest plan --workspace tickets
```

* Each value has its place in the paper, or says `ours` where the paper leaves it open, with the reason.
* `<e>` in a name stands for the epsilon of the rows: `--epsilon 0.5` makes `filter0_5`. Without it a preset has the
  epsilon that stands below.
* A preset sets no model. `--lm` names the language model, and params.yaml takes the others. Without one the embedded
  model stands in, and the page says what differs for it. `utility.finetune` counts once `models.classifier` is named
  and `utility.evaluators` has `finetuned`.
* All rows of a preset must fit `--budget`. `init` says how much they take where they do not.
* Where two lines have one key, the later one counts wherever it holds.
* What a preset cannot do at the cost that its paper states is a flag of `palimpsest plan`, with the number.
"""
_TABLE = "| Key | Value | Where | Source | What it says, or why |\n| --- | --- | --- | --- | --- |\n"
_BY_ENDPOINT = """
Where the author answers behind an endpoint, these stand in place of the keys under `authors`, and over `expand`. They
are written by hand, with `url` and `model` ([endpoints](howto/endpoint.md)).

"""


def render() -> str:
    """The page as Markdown: one table for each preset, and what it cannot do."""
    return _HEAD + "".join("".join(_section(preset)) for preset in presets().values())


def _section(preset: Preset) -> Iterator[str]:
    yield f"\n## `{preset.name}`\n\n{preset.title}. For {_listed(preset.tasks)}. "
    yield f"Its epsilon is {preset.epsilon:g} without `--epsilon`.\n\n"
    yield f"In the paper: {'; '.join(f'`{key}` is {said}' for key, said in preset.models.items())}.\n\n"
    yield "".join(f"* {said}\n" for said in preset.beyond)
    yield "".join(f"* Not there. {said}\n" for said in preset.lacks)
    yield "\n" + _table(preset.entries)
    if preset.by_endpoint:
        yield _BY_ENDPOINT + _table(preset.by_endpoint)


def _table(entries: Iterable[Entry]) -> str:
    return _TABLE + "".join(f"| {' | '.join(_cells(entry))} |\n" for entry in entries)


def _cells(entry: Entry) -> Iterator[str]:
    yield f"`{entry.key}`"
    yield entry.value.words if isinstance(entry.value, Worked) else f"`{flow(entry.value)}`"
    yield "" if entry.where == ALWAYS else entry.where
    yield entry.source
    yield entry.says.replace("|", "\\|").replace("<e>", "`<e>`")


def _listed(tasks: Iterable[str]) -> str:
    names = [f"`{task}`" for task in tasks]
    return f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names[:-1])} and {names[-1]}"
