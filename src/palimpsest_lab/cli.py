"""The lab's commands. Each calls a plain function in its own module; heavy imports wait until then."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from palimpsest.cli.command import Command, end
from palimpsest.errors import ParamsError
from palimpsest.files import write_json
from palimpsest.workspace import RATINGS


def dataset(
    name: Annotated[str | None, typer.Argument(help="Which; none: list the data sets there are.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--from", help="The folder with its files as published, unpacked; none: this one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--dir", help="Where to write; none: a folder of that name, here.")
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="Public text to bring: a table with the column text, or a folder of .txt files.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(help="With --public: bring so many sentences of its texts, spread over all of them.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Which of its labels to learn, where it has several, with commas between; none: the first."),
    ] = None,
    cut: Annotated[
        float | None,
        typer.Option(help="Cut this share for the test from all parts, 0.2 for 80:20; none: the publishers' split."),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --cut: another one draws another test part.")] = 0,
    n_public: Annotated[
        int | None,
        typer.Option(
            "--rows-about", "--n-public", help="About how many private records there are; none: as published."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the files of an earlier time.")] = False,
) -> None:
    """A data set of the papers, by its name, ready for `init`.

    Its published files become private, test and public ones. Nothing is fetched: where files are missing, it says
    which ones and where they come from. It prints the `palimpsest init` to go on with. Numbers of rows, and how many
    recur in the public text, are in README.md.
    """
    from palimpsest_lab.commands.dataset import Asked, make_dataset, show_known

    if name is None:
        return show_known()
    asked = Asked(folder or Path(), out or Path(name), public, label, cut, seed, n_public, sentences)
    make_dataset(name, asked, force=force)


def reproduce_table(
    paper: Annotated[str | None, typer.Argument(help="000, 002, 003 or 004, or house; none: list all tables.")] = None,
    table: Annotated[str | None, typer.Argument(help="Which of its tables or figures.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the published files; each data set may have a folder in it.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The causal language model that writes: a folder; none: the embedded one.")
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(help="The model that judges: an encoder to fine-tune, or one that answers in context; a folder."),
    ] = None,
    cells: Annotated[
        str | None, typer.Option(help="Some cells, separated by commas, * for anything: sst2/multitask3; none: all.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would run and cost, and nothing else.")] = False,
    records: Annotated[
        str | None,
        typer.Option(
            help="Public, approximate numbers of private records of a part: agnews=29575; none: as published."
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Cap on the total epsilon of each data set that the ledger does not know.")
    ] = 100.0,
    precision: Annotated[
        str | None,
        typer.Option(help="float32 or bf16: what the model of --model computes in; none: as the table has it."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="A folder for its workspaces; none: reproduction-PAPER.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Charge without asking, for scripts.")] = False,
) -> None:
    """A table or figure of a paper, ours beside the published one.

    Epsilon is that of both countings. Each data set has an ordinary workspace with a variant for each cell, and its
    ledger. The same line again goes on; finished cells stay. What cannot run says why: it is missing, or needs a file,
    a GPU or an API.
    """
    from palimpsest_lab.commands.reproduce import read_options, reproduce, show_tables

    if paper is None or table is None:
        return show_tables(paper)
    asked = read_options(folder or Path(f"reproduction-{paper}"), data, model, judge, cells, records, budget, precision)
    end(reproduce(paper, table, asked, plan=plan, yes=yes))


def rate(
    variants: Annotated[list[str] | None, typer.Argument(help="Which; none: all whose rows are not private.")] = None,
    sheet: Annotated[int, typer.Option(min=1, help="Rows of each variant on the sheet, blinded.")] = 20,
    read: Annotated[
        list[Path] | None, typer.Option(help="No sheet: read a filled one, print what people said. Repeat it.")
    ] = None,
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="The folder with params.yaml.")] = Path(),
) -> None:
    """A blinded sheet for people who judge rows, and what they said.

    References only if they are named.
    """
    from palimpsest.work.look import run_private

    program = partial(run_private, workspace, "palimpsest_lab.stages.ratings")  # of the private zone
    if not read:
        done = f"Sheet (private zone): {(workspace / RATINGS).resolve()}/sheet.csv; the key beside it stays here."
        end(program(["sheet", str(sheet), *(variants or [])], done))
    if variants:
        raise ParamsError("--read is given with a VARIANT.", "Give it alone, with --read before each filled sheet.")
    end(program(["read", *(str(path.resolve()) for path in read)], ""))


def twins(
    method: Annotated[str, typer.Argument(help="Whose code; that of an installed package too, if it brings a scene.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result, as METHOD.json; none: it is printed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Invents other records and models; no seed fixes coins or noise.")] = 7,
) -> None:
    """Attack a method's own code, as it is and broken on purpose.

    End to end, on invented records. No workspace is read and no ledger but its own. Exit status: 0 where the claim
    stands and every broken version is caught, else 1.
    """
    from palimpsest_lab.twins.audit import audit_twins
    from palimpsest_lab.twins.result import SOUND
    from palimpsest_lab.twins.scenes import scene_of

    found = audit_twins(scene_of(method)(seed), seed)
    if out is None:
        print(json.dumps(found.to_json(), indent=2))
    else:
        write_json(out / f"{method}.json", found.to_json())
    raise typer.Exit(int(found.verdict != SOUND))


DATASET = Command(
    dataset,
    (
        "palimpsest dataset",
        "palimpsest dataset sst2 --from ~/downloads/sst2 --public reviews.jsonl --cut 0.2",
        "palimpsest dataset yelp --from ~/aug-pe/data --label stars --dir yelp_stars",
    ),
)
REPRODUCE = Command(
    reproduce_table,
    (
        "palimpsest reproduce",
        "palimpsest reproduce 000 table1 --plan",
        "palimpsest reproduce 004 table2 --data ~/published --model ~/gpt2 --judge ~/qwen --cells 'trec/*'",
    ),
)
RATE = Command(rate, ("palimpsest rate --sheet 20", "palimpsest rate --read ann.csv --read ben.csv"))
TWINS = Command(twins, ("palimpsest twins select", "palimpsest twins dp_lm --out twins"))
