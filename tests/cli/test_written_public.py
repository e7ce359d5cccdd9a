"""No public text at hand: an author behind an endpoint writes it, and everything reads what it wrote."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_place import call, init, write_files
from click.testing import Result
from ruamel.yaml import YAML

import stages.write_public
from palimpsest.errors import BackendError, ParamsError
from palimpsest.graph.taint import Flow, Node, nodes, taint
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.predict.declaration import PREDICT
from palimpsest.models.settings import words_of
from palimpsest.params.load import loads, read
from palimpsest.params.sources import describe_public_rows, public_sources
from palimpsest.params.written import describe_writing, writer_of
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.records.record import Record
from palimpsest.work import run
from palimpsest.workspace import GRAPH, SYNTHETIC, WRITTEN, Zone
from stages.preprocess import write_public_rows
from stages.tools import Artifacts
from stages.zero_shot import Writes
from tests.models.chat.server import Reply, Running, Seen, completion, failure, serving
from tests.pipeline.place import warm
from tests.settings_file import edit_settings

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(600)]  # whose stages start warm, as these do

WORDS = {"bills": "invoice payment charge refund", "parcels": "parcel box courier delivery"}
MOODS = ("late", "lost", "wrong", "here", "gone", "torn", "fine")
MARKER, ABOUT = "qvxzkwjy", "messages to a shop"  # a word that only private rows hold


def answer(seen: Seen, _count: int) -> Reply:
    """A text about the label's things, the same for the same request; one in ten is empty."""
    told = seen.json["messages"][-1]["content"]
    number = int(hashlib.sha256(seen.body).hexdigest()[:8], 16)
    words = next(words for label, words in WORDS.items() if f'"{label}"' in told).split()
    return completion(
        "" if number % 10 == 0 else f"My {words[number % 4]} of day {number % 997} is {MOODS[number % 7]}."
    )


class Home:
    """A folder with a private file, a ledger, and the workspace that `init` makes without public text."""

    def __init__(self, folder: Path, server: Running) -> None:
        self.folder, self.workspace, self.server = folder, folder / "work", server
        folder.mkdir(exist_ok=True)
        words = [(label, listed.split()) for label, listed in WORDS.items()]
        rows = [f"the {listed[n % 4]} {MARKER} {n} is late,{label}" for n in range(60) for label, listed in words]
        (folder / "own.csv").write_text("\n".join(["body,team", *rows, ""]))

    def init(self, command: str = "init", folder: str = "workspace") -> Result:
        options = {
            "text": "body", "label": "team", "labels": "bills=Of money,parcels=Of things sent", "n-public": 120,
            "author": f"{self.server.url}#writer-1", "about": ABOUT, "budget": 20, folder: self.workspace,
        }  # fmt: skip
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        return call(command, self.folder / "own.csv", *given, ledger=self.folder / "ledger.db")

    def call(self, *arguments: object) -> Result:
        return call(*arguments, "--workspace", self.workspace, ledger=self.folder / "ledger.db")

    def edit(self, *keys: str, **values: Any) -> None:
        """Change params.yaml; DVC reads an address only where it is quoted."""
        edit_settings(self.workspace, *keys, **values)
        path = self.workspace / "params.yaml"
        path.write_text(re.sub(r"url: (http[^\s\"]+),", r'url: "\1",', path.read_text()))

    def write(self, patch: pytest.MonkeyPatch) -> list[dict[str, str]]:
        """Let the stage write again."""
        patch.chdir(self.workspace)
        stages.write_public.run("public", "writer")
        return self.written

    @property
    def written(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.workspace / WRITTEN).read_text().splitlines()]

    def provenance(self, patch: pytest.MonkeyPatch) -> str:
        """What an answer of a method that reads the embedded model is known by, with the public text as it is now."""
        patch.chdir(self.workspace)
        params = read(self.workspace)
        write_public_rows(params)
        return Artifacts(params, Writes("predict3", None, method=PREDICT)).provenance()

    @property
    def rows(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.workspace / SYNTHETIC / "select3.jsonl").read_text().splitlines()]

    @property
    def charges(self) -> list[Charge]:
        return Ledger.open(f"sqlite:///{self.folder / 'ledger.db'}").charges("own")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Result]]:
    with serving(answer) as server:
        home = Home(tmp_path_factory.mktemp("written"), server)
        done = home.init()
        home.edit("runs", audit=[])
        home.edit("utility", evaluators=["tfidf_lr"])
        home.edit("dataset", "written", texts=80)
        home.edit("authors", "writer", price={"read": 500.0, "written": 900.0})
        yield home, done


@pytest.fixture(scope="module")
def planned(made: tuple[Home, Result]) -> Result:
    return made[0].call("plan")


@pytest.fixture(scope="module")
def ran(made: tuple[Home, Result], planned: Result) -> Home:
    """After a run that writes and chooses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # which the process that has the libraries does not know
        patch.setattr(run, "serve_stages", lambda _: nullcontext(warm()))
        done = made[0].call("run", "--yes", "select@select3")
    assert done.exit_code == 0, done.output
    return made[0]


def test_init_and_plan_say_what_will_be_written_and_its_cost(made: tuple[Home, Result], planned: Result) -> None:
    assert made[1].exit_code == 0, made[1].output
    assert "public text: writer-1 writes the public file, 2,000 texts" in made[1].stdout
    said = re.search(
        r"writer-1 writes the public file, 80 texts.*: (\d+) calls, .* (\d+\.\d\d) in money", planned.stdout
    )
    assert said is not None, planned.stdout
    assert int(said[1]) == 80
    assert 1.0 < float(said[2]) < 10.0


def test_synth_says_what_writing_costs_before_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_workspace", lambda *_, **__: pytest.fail("it ran"))
    with serving(answer) as server:
        done = Home(tmp_path, server).init("synth", "dir")
        assert (done.exit_code, server.seen) == (1, [])
    assert "after public text is written (writer-1 writes the public file, 2,000 texts" in done.stderr


def test_rows_are_texts_that_the_author_wrote(ran: Home) -> None:
    texts = [row["body"] for row in ran.written]
    assert {row["team"] for row in ran.rows} == set(WORDS)
    assert {row["body"] for row in ran.rows} <= set(texts)
    assert 40 <= len(texts) == len({*texts}) <= 80
    assert all(row["body"].split()[1] in WORDS[row["team"]] for row in ran.written)
    told = describe_public_rows(read(ran.workspace), ["select3"])  # which the card says
    assert told.startswith("Rows of select3 are texts that the model writer-1 wrote, word for word. No record was")


def test_the_author_is_told_public_words_and_no_row(ran: Home) -> None:
    sent = [json.dumps(seen.json) for seen in ran.server.seen]
    assert all(ABOUT in one and ("Of money" in one or "Of things sent" in one) for one in sent)
    assert not any(MARKER in one for one in sent)


def test_what_was_answered_is_not_asked_again(ran: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = (ran.workspace / WRITTEN).read_bytes(), len(ran.server.seen)
    ran.write(monkeypatch)
    assert ((ran.workspace / WRITTEN).read_bytes(), len(ran.server.seen)) == (before, asked)
    assert "writes the public file" not in ran.call("plan").stdout


def test_other_words_are_written_anew(ran: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = ran.written, len(ran.server.seen)
    ran.edit("dataset", "labels", bills="Of invoices")
    assert "writes the public file" in ran.call("plan").stdout
    described = ran.write(monkeypatch)
    texts = [[row["body"] for row in found if row["team"] == "bills"] for found in (before, described)]
    assert texts[0] != texts[1]
    assert [row for row in described if row["team"] == "parcels"] == [row for row in before if row["team"] == "parcels"]
    assert len(ran.server.seen) > asked
    ran.edit("dataset", "labels", bills="Of money")


def test_other_texts_are_another_source_of_answers(ran: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class means that `select` asks for are of private rows alone, so another author's texts cost nothing."""
    before, charges, known = ran.write(monkeypatch), ran.charges, ran.provenance(monkeypatch)
    assert ran.provenance(monkeypatch) == known
    ran.edit("authors", "writer", model="writer-2")  # which answers otherwise
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setattr(run, "serve_stages", lambda _: nullcontext(warm()))
    done = ran.call("run", "--yes", "select@select3")
    assert done.exit_code == 0, done.output
    written = {row["body"] for row in ran.written}
    assert written != {row["body"] for row in before}
    assert {row["body"] for row in ran.rows} <= written
    assert ran.provenance(monkeypatch) != known
    assert ran.charges == charges


def test_a_stopped_writing_goes_on_with_the_answers_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_after = [30]

    def fail(seen: Seen, count: int) -> Reply:
        return failure(401) if count >= broken_after[0] else answer(seen, count)

    with serving(fail) as broken, serving(answer) as whole:
        homes = [Home(tmp_path / name, server) for name, server in (("stopped", broken), ("whole", whole))]
        for home in homes:
            assert home.init().exit_code == 0
            home.edit("dataset", "written", texts=60)
            home.edit("authors", "writer", concurrency=1, retries=0)
        with pytest.raises(BackendError):
            homes[0].write(monkeypatch)
        assert not (homes[0].workspace / WRITTEN).exists()
        refused = len(broken.seen) - broken_after[0]
        broken_after[0] = 10**9
        assert homes[0].write(monkeypatch) == homes[1].write(monkeypatch)
        assert len(broken.seen) - refused == len(whole.seen)


class Base(BaseAuthor):
    """A base model that stops once it has written so many parts."""

    def __init__(self, stops: int) -> None:
        self.parts, self._stops = list[Mapping[str, Sequence[int]]](), stops

    def write(self, numbers: Mapping[str, Sequence[int]]) -> list[Record]:
        if len(self.parts) == self._stops:
            raise KeyboardInterrupt
        self.parts.append(numbers)
        return [Record(f"{label} {n // 2}", label) for label, own in numbers.items() for n in own]


def test_a_base_model_goes_on_with_the_parts_it_wrote(tmp_path: Path) -> None:
    model = tmp_path / "lm"
    model.mkdir()
    (model / "config.json").write_text("{}")
    settings = SimpleNamespace(model_dump=lambda mode: {"prompt": "Question:"})
    tools: Any = SimpleNamespace(
        author=lambda: settings, base=lambda: model, seed=7, schema=SimpleNamespace(labels={"a": "A", "b": "B"})
    )
    wanted = {"a": 100, "b": 20}
    write = stages.write_public.write
    stopped = Base(1)
    with pytest.raises(KeyboardInterrupt):
        list(write(stopped, wanted, tools, tmp_path / "kept"))
    goes_on, alone = Base(9), Base(9)
    records = list(write(goes_on, wanted, tools, tmp_path / "kept"))
    assert stopped.parts + goes_on.parts == [*stopped.parts, *goes_on.parts]
    assert records == list(write(alone, wanted, tools, tmp_path / "other"))
    assert [*stopped.parts, *goes_on.parts] == alone.parts
    assert len(stages.write_public.select_texts(records, wanted)) == 120
    settings.model_dump = lambda mode: {"prompt": "Answer:"}
    other = Base(9)
    list(write(other, wanted, tools, tmp_path / "kept"))
    assert other.parts == alone.parts


def test_too_little_is_refused() -> None:
    rows = [Record(text, "a") for text in ("one", "one", " ", "two")]
    assert [row.text for row in stages.write_public.select_texts(rows, {"a": 4})] == ["one", "two"]
    with pytest.raises(BackendError, match="too few different texts"):
        stages.write_public.select_texts(rows, {"a": 5})


REFUSED = {
    "nobody": ({}, "--public is missing, and --lm is embedded"),
    "the embedded model": ({"author": "base"}, "--author is of kind base"),
    "no model at the endpoint": ({"author": "http://host/v1"}, "which names no model"),
    "both": ({"author": "http://host/v1#m", "public": "public.csv"}, "--public is given beside --author"),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_a_start_without_anybody_who_can_write_is_refused(
    tmp_path: Path, options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_files(tmp_path / "home")
    monkeypatch.chdir(home)
    done = init(home, home / "work", **({"public": None} | options))
    assert (done.exit_code, said in done.stderr) == (1, True), done.stderr
    assert "what to do: " in done.stderr
    assert not (home / "work").exists()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"author": "base"}, "words from public text alone"),
        ({"author": "corpus"}, "Allowed here: base, writer"),
        ({"author": "nobody"}, "Allowed here: base, writer"),
    ],
)
def test_settings_whose_author_cannot_write_are_refused(
    made: tuple[Home, Result], edit: dict[str, str], said: str
) -> None:
    text = (made[0].workspace / "params.yaml").read_text()
    body = YAML(typ="safe", pure=True).load(text)
    body["dataset"]["written"] |= edit
    with pytest.raises(ParamsError) as error:
        loads(json.dumps(body))
    assert said in error.value.lines


def test_a_file_and_an_author_are_not_both_named(made: tuple[Home, Result]) -> None:
    body = YAML(typ="safe", pure=True).load((made[0].workspace / "params.yaml").read_text())
    body["dataset"]["public"] = "/own/public.csv"
    with pytest.raises(ParamsError, match="and not both"):
        loads(json.dumps(body))


def test_a_base_model_is_prompted_in_words_and_shown_no_text(made: tuple[Home, Result]) -> None:
    body = YAML(typ="safe", pure=True).load((made[0].workspace / "params.yaml").read_text())
    body["dataset"]["written"] = {"author": "base", "about": "{odd} words"}
    body["models"] = {"lm": "/models/gemma"}
    with pytest.raises(ParamsError, match=r"name models\.words"):
        loads(json.dumps(body))
    body["models"]["words"] = "questions"
    params = loads(json.dumps(body))
    author: Any = writer_of(params)
    assert (author.start, author.examples, author.shots) == ("prompt", 0, 0)
    assert author.prompt == f"{{{{odd}}}} words\n\n{words_of('questions').prompt(labelled=True)}"
    assert params.authors["base"].examples == 2  # of other authors of that name
    assert "gemma writes the public file" in describe_writing(params)
    used = {source.key for source in public_sources(params) if source.used}
    assert {"models.lm", "dataset.public", "dataset.written.about", "authors.base.prompt"} <= used
    assert "the model gemma wrote" in describe_public_rows(params, ["select3"])


def test_without_labels_the_usual_prompt_names_none(made: tuple[Home, Result]) -> None:
    body = YAML(typ="safe", pure=True).load((made[0].workspace / "params.yaml").read_text())
    body["dataset"] |= {"task": "text", "label": None, "labels": {}}
    body["variants"] = {"dp3": {"method": "dp_lm"}}
    body |= {"lms": {"dp3": {"epsilon": 3}}, "utility": {}}
    author: Any = writer_of(loads(json.dumps(body)))
    assert author.prompts.random.startswith("Write one text, as a person")
    assert "{label}" not in author.prompts.random + author.prompts.paraphrase


def test_no_private_file_reaches_what_the_author_writes(ran: Home) -> None:
    """By the graph alone: the stage is public, and stays what it is only while it reads nothing private."""
    graph = YAML(typ="safe", pure=True).load((ran.workspace / GRAPH).read_text())["stages"]
    params = YAML(typ="safe", pure=True).load((ran.workspace / "params.resolved.yaml").read_text())
    found = nodes(graph, params, ran.workspace)
    (writes,) = [node for node in found if node.name == "write_public@public"]
    flow = Flow(tuple(found), (params["dataset"]["private"],), frozenset({"select@select3"}))
    assert (writes.zone, flow.zone(writes), writes.writes) == (Zone.PUBLIC, Zone.PUBLIC, (str(WRITTEN),))
    assert taint(flow) == []
    for private in ("data/private/train.parquet", params["dataset"]["private"]):
        reading = replace(writes, reads=(*writes.reads, private))
        spoilt: list[Node] = [reading if node is writes else node for node in found]
        assert any("write_public@public" in way for way in taint(replace(flow, nodes=tuple(spoilt))))


def test_the_settings_stay_as_they_were_written(made: tuple[Home, Result]) -> None:
    params = read(made[0].workspace)
    assert (params.dataset.public, params.dataset.public_labels) == (str(WRITTEN), True)
    assert params.run.write_public == {"public": "writer"}
