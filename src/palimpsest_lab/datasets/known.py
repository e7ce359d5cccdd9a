"""The known data sets, each declared once, in the order of the papers that measure on them.

Numbers of records are the publishers'. Descriptions of labels are ours: words for a prompt.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from palimpsest.errors import ParamsError
from palimpsest_lab.datasets import readers
from palimpsest_lab.datasets.declaration import Attribute, DataSet, Form, Part

_OPINIONS = {"negative": "an unfavourable opinion", "positive": "a favourable opinion"}
_SENTIMENT = (Attribute("label", _OPINIONS),)
_SIGNS = {"0": "negative", "1": "positive"}
_ZHANG = "readme.txt of the archive by Zhang, Zhao and LeCun (2015), which torchtext and others read"
_FILM_QUESTIONS = "Questions about anything but films, or openings of Wikipedia articles."
_NO_LICENCE = "None is stated; the publishers ask to be cited."


def _own_form(name: str, labels: tuple[str, ...], rows: int, others: int = 0) -> tuple[Form, ...]:
    """Return our own form: a table with the columns `text` and one for each attribute, under either of two names."""
    read = partial(readers.read_headed, text="text", labels=labels)
    says = f"JSON lines with the keys {', '.join(('text', *labels))}"
    both: list[Form] = []
    for front in (f"{name}_", ""):
        files: Mapping[Part, tuple[str, ...]] = {
            "train": (f"{front}train.jsonl",), "dev": (f"{front}dev.jsonl",), "test": (f"{front}test.jsonl",),
        }  # fmt: skip
        both.append(Form(says, files, read, rows, "docs/howto/datasets.md", others=others, needed=("train",)))
    return tuple(both)


def _zhang_form(
    folder: str, names: tuple[str, ...], fields: int, rows: int, others: int, texts: slice = slice(None),
    newline: str = "\\n",
) -> Form:  # fmt: skip
    """Return the form of two CSV files without a header, whose first field is the class."""
    read = partial(readers.read_numbered, names=names, fields=fields, texts=texts, newline=newline)
    return Form(
        f"{folder}: train.csv and test.csv, each row a class and {'a text' if fields == 2 else 'two texts'}",
        {"train": ("train.csv",), "test": ("test.csv",)}, read, rows, _ZHANG, folder, others,
    )  # fmt: skip


def _hub_form(
    folder: str, text: str, names: tuple[str, ...], rows: int, others: int, test: str = "test", *, verified: bool
) -> Form:
    """Return the form of the Parquet files of the Hugging Face hub, which number labels from 0."""
    named = {str(place): name for place, name in enumerate(names)}
    read = partial(readers.read_headed, text=text, labels=("label",), named=named)
    return Form(
        f"the Parquet files of the hub, columns {text} and label",
        {"train": ("train-*.parquet",), "test": (f"{test}-*.parquet",)},
        read, rows, "the data set's card on huggingface.co", folder, others, verified=verified,
    )  # fmt: skip


def _aug_pe_form(home: str, prefixes: tuple[str, ...], rows: int, others: int, *, verified: bool) -> Form:
    """Return the form of Aug-PE's tables: text, label1, label2, with the attribute's name before each label."""
    columns = tuple(f"label{place}" for place, _ in enumerate(prefixes, 1))
    read = partial(readers.read_headed, text="text", labels=columns, prefixes=prefixes)
    files: Mapping[Part, tuple[str, ...]] = {"train": ("train.csv",), "dev": ("dev.csv",), "test": ("test.csv",)}
    return Form(
        f"data/{home} of AI-secure/aug-pe: train.csv, dev.csv and test.csv, columns {', '.join(('text', *columns))}",
        files, read, rows, "data/README.md and dpsda/data_loader.py of AI-secure/aug-pe", home, others,
        needed=("train", "test"), verified=verified,
    )  # fmt: skip


_TREEBANK = ("datasetSentences.txt", "datasetSplit.txt", "dictionary.txt", "sentiment_labels.txt")
_SST2 = DataSet(
    name="sst2",
    does="Sentences of film reviews with a negative or positive opinion (paper 000).",
    task="classify",
    forms=(
        Form(
            "stanfordSentimentTreebank: sentences, their split, the dictionary of phrases and its scores",
            {"train": _TREEBANK, "dev": _TREEBANK, "test": _TREEBANK}, readers.read_treebank, 6920,
            "README.txt of stanfordSentimentTreebank.zip", "stanfordSentimentTreebank", 2693,
        ),
        Form(
            "stsa.binary files: each line 0 or 1, a blank and a sentence",
            {"train": ("stsa.binary.train",), "dev": ("stsa.binary.dev",), "test": ("stsa.binary.test",)},
            partial(readers.read_leading, named=_SIGNS), 6920,
            "load_sst2 in data_utils.py of tonyzhaozh/few-shot-learning",
            others=2693,
        ),
        Form(
            "SST-2 of GLUE: train.tsv and dev.tsv, columns sentence and label; phrases too, so far more rows",
            {"train": ("train.tsv",), "test": ("dev.tsv",)}, partial(readers.read_tabbed, named=_SIGNS), 67349,
            "the card of nyu-mll/glue, and flair's GLUE_SST2; GLUE's test.tsv has no labels", "SST-2", 872,
        ),
        _hub_form("sst2", "sentence", ("negative", "positive"), 67349, 872, "validation", verified=True),
        *_own_form("sst2", ("label",), 6920, 2693),
    ),
    where="https://nlp.stanford.edu/sentiment/ (stanfordSentimentTreebank.zip)",
    licence=_NO_LICENCE + " Socher et al. 2013.",
    max_length=300,
    words="reviews",
    public="Unlabelled film reviews, such as train/unsup of aclImdb. Never MR (sentence polarity) or SUBJ: most of "
    "SST-2 recurs in the first, and much of it in the second.",
    attributes=_SENTIMENT,
    split="Paper 000 splits 80:20 (--cut 0.2) and counts 11,855 sentences, the neutral ones included. 9,613 are "
    "negative or positive.",
)  # fmt: skip

_NEWS = ("World", "Sports", "Business", "Sci/Tech")
_AGNEWS = DataSet(
    name="agnews",
    does="News items of four topics (papers 000, 003 and 004).",
    task="classify",
    forms=(
        # Despite its readme.txt, this archive writes a line break as a single backslash.
        _zhang_form("ag_news_csv", _NEWS, 3, 120_000, 7600, newline="\\"),
        _hub_form("data", "text", _NEWS, 120_000, 7600, verified=False),
        *_own_form("agnews", ("label",), 120_000, 7600),
    ),
    where="ag_news_csv.tgz by Xiang Zhang (course.fast.ai and torchtext keep copies), or fancyzhx/ag_news on the hub",
    licence="For research and any other non-commercial activity, says its readme.txt.",
    max_length=600,
    words="news",
    public="News of other years, such as Reuters-21578.",
    attributes=(
        Attribute(
            "label",
            {
                "World": "world politics and events",
                "Sports": "sports",
                "Business": "companies, markets and the economy",
                "Sci/Tech": "science and technology",
            },
        ),
    ),
    split="Paper 000 splits all rows 80:20 (--cut 0.2).",
)

_DISASTER = DataSet(
    name="disaster",
    does="Tweets that report a real disaster, or do not (paper 004).",
    task="classify",
    forms=(
        Form(
            "train.csv of Kaggle's nlp-getting-started, columns id, keyword, location, text, target",
            {"train": ("train.csv",)},
            partial(readers.read_headed, text="text", labels=("target",), named={"0": "other", "1": "disaster"}), 7613,
            "the competition's data page; its test.csv has no labels", "nlp-getting-started", needed=("train",),
        ),
        *_own_form("disaster", ("label",), 7613),
    ),
    where="https://www.kaggle.com/c/nlp-getting-started/data (an account is needed)",
    licence="The rules of the Kaggle competition; the tweets were gathered by figure-eight.",
    max_length=200,
    words="tweets",
    public="Tweets of other years about anything, or news headlines.",
    attributes=(
        Attribute("label", {"other": "no disaster, or words used in jest", "disaster": "a disaster that happens"}),
    ),
    split="Its publishers label one file alone, so a fifth is cut from it unless --cut says another share.",
)  # fmt: skip

_CATEGORIES = (
    "Arts & Entertainment", "Bars", "Beauty & Spas", "Event Planning & Services", "Grocery", "Health & Medical",
    "Home & Garden", "Hotels & Travel", "Restaurants", "Shopping",
)  # fmt: skip
_REVIEW_STARS = "{text: Review, label: Stars}"
_STARS = Attribute("stars", {f"{stars}.0": f"{stars} of 5 stars" for stars in range(1, 6)}, _REVIEW_STARS)
_YELP = DataSet(
    name="yelp",
    does="Reviews of businesses with a category and stars (paper 002).",
    task="classify",
    forms=(
        _aug_pe_form("yelp", ("Business Category: ", "Review Stars: "), 1_939_290, 10_000, verified=True),
        *_own_form("yelp", ("category", "stars"), 1_939_290, 10_000),
    ),
    where="https://github.com/AI-secure/aug-pe/tree/main/data (train.csv from the drive that its README names)",
    licence="Yelp's terms for the Open Dataset: academic use, not to be handed on.",
    max_length=1500,
    words="{text: Review, label: Business}",
    public="Reviews of other things, such as films or books, or openings of Wikipedia articles.",
    attributes=(Attribute("category", {name: f"the category {name}" for name in _CATEGORIES}), _STARS),
    split="Paper 002 trains on 1.9 million rows; dev.csv is left out.",
)
_YELP_REVIEWS = DataSet(
    name="yelp_reviews",
    does="Reviews of the Yelp Open Dataset with stars and their writers: persons are the unit.",
    task="classify",
    forms=(
        Form(
            "yelp_academic_dataset_review.json: a JSON object a line, with text, stars and user_id",
            {"train": ("yelp_academic_dataset_review.json",)}, readers.read_reviews, 6_990_280,
            "https://business.yelp.com/data/resources/open-dataset/", "yelp_dataset", persons=1_987_897,
            needed=("train",),
        ),
    ),
    where="https://business.yelp.com/data/resources/open-dataset/",
    licence="Yelp's terms for the Open Dataset: academic use, not to be handed on.",
    max_length=1500,
    words=_REVIEW_STARS,
    public="Reviews of other things, such as films or books, or openings of Wikipedia articles.",
    attributes=(_STARS,),
    split="Its publishers do not split it. A fifth of the persons is cut, each with all their reviews.",
)  # fmt: skip
_YELP_POLARITY = DataSet(
    name="yelp_polarity",
    does="Reviews of businesses with a negative or positive opinion (paper 003).",
    task="classify",
    forms=(
        _zhang_form("yelp_review_polarity_csv", ("negative", "positive"), 2, 560_000, 38_000),
        _hub_form("plain_text", "text", ("negative", "positive"), 560_000, 38_000, verified=False),
        *_own_form("yelp_polarity", ("label",), 560_000, 38_000),
    ),
    where="yelp_review_polarity_csv.tgz by Xiang Zhang, or fancyzhx/yelp_polarity on the hub",
    licence="Yelp's terms for its data: academic use.",
    max_length=1500,
    words="reviews",
    public="Film reviews, or openings of Wikipedia articles.",
    attributes=_SENTIMENT,
)

_RECOMMENDATIONS = (
    "1: strong reject", "3: reject, not good enough", "5: marginally below the acceptance threshold",
    "6: marginally above the acceptance threshold", "8: accept, good paper",
)  # fmt: skip
_AREAS = (
    "Applications (eg, speech processing, computer vision, NLP)",
    "Deep Learning and representational learning",
    "General Machine Learning",
    "Generative models",
    "Machine Learning for Sciences (eg biology, physics, health sciences, social sciences, climate/sustainability )",
    "Neuroscience and Cognitive Science (e.g., neural coding, brain-computer interfaces)",
    "Optimization (eg, convex and non-convex optimization)",
    "Probabilistic Methods (eg, variational inference, causal inference, Gaussian processes)",
    "Reinforcement Learning (eg, decision and control, planning, hierarchical RL, robotics)",
    "Social Aspects of Machine Learning (eg, AI safety, fairness, privacy, interpretability, human-AI interaction, "
    "ethics)",
    "Theory (eg, control theory, learning theory, algorithmic game theory)",
    "Unsupervised and Self-supervised learning",
)
_OPENREVIEW = DataSet(
    name="openreview",
    does="Reviews of papers for ICLR 2023 with an area and a recommendation (paper 002).",
    task="classify",
    forms=(
        _aug_pe_form("openreview", ("Area: ", "Recommendation: "), 8396, 5596, verified=False),
        *_own_form("openreview", ("area", "recommendation"), 8396, 5596),
    ),
    where="https://github.com/AI-secure/aug-pe/tree/main/data/openreview",
    licence="None is stated with the tables; the reviews stand under the terms of openreview.net.",
    max_length=4000,
    words="{text: Review of a paper, label: Area}",
    public="Reviews of other things, abstracts of arXiv, or openings of Wikipedia articles.",
    attributes=(
        Attribute("area", {name: name.partition(" (")[0] for name in _AREAS}),
        Attribute(
            "recommendation",
            {name: name.partition(": ")[2] for name in _RECOMMENDATIONS},
            "{text: Review of a paper, label: Recommendation}",
        ),
    ),
    split="dev.csv is left out.",
)

_PUBMED = DataSet(
    name="pubmed",
    does="Abstracts of medical papers of August 2023, without labels (paper 002).",
    task="text",
    forms=(_aug_pe_form("pubmed", (), 75_316, 18_876, verified=True), *_own_form("pubmed", (), 75_316, 18_876)),
    where="https://github.com/AI-secure/aug-pe/tree/main/data (train.csv from the drive that its README names)",
    licence="None is stated with the tables. PubMed's abstracts may be protected by their publishers.",
    max_length=2500,
    words="{text: Abstract of a medical paper}",
    public="Openings of Wikipedia articles, or abstracts of other fields. A model that learned from PubMed before "
    "August 2023 has not seen these.",
    split="dev.csv is left out.",
)

_IMDB = DataSet(
    name="imdb",
    does="Long film reviews with a negative or positive opinion (paper 003).",
    task="classify",
    forms=(
        Form(
            "aclImdb: a text file a review, in train and test, pos and neg",
            {"train": ("train/neg/*.txt", "train/pos/*.txt"), "test": ("test/neg/*.txt", "test/pos/*.txt")},
            partial(readers.read_folders, named={"neg": "negative", "pos": "positive"}), 25_000,
            "README of aclImdb_v1.tar.gz", "aclImdb", 25_000,
        ),
        _hub_form("plain_text", "text", ("negative", "positive"), 25_000, 25_000, verified=False),
        *_own_form("imdb", ("label",), 25_000, 25_000),
    ),
    where="https://ai.stanford.edu/~amaas/data/sentiment/ (aclImdb_v1.tar.gz)",
    licence=_NO_LICENCE + " Maas et al. 2011.",
    max_length=2000,
    words="reviews",
    public="Reviews of other things, or openings of Wikipedia articles. Its own train/unsup is by the same writers.",
    attributes=_SENTIMENT,
)  # fmt: skip

_KINDS = {
    "Company": "a company", "EducationalInstitution": "a school or university", "Artist": "an artist",
    "Athlete": "an athlete", "OfficeHolder": "a politician or official",
    "MeanOfTransportation": "a vehicle, ship or plane", "Building": "a building",
    "NaturalPlace": "a mountain, river or lake", "Village": "a village", "Animal": "an animal", "Plant": "a plant",
    "Album": "a music album", "Film": "a film", "WrittenWork": "a book, journal or other written work",
}  # fmt: skip
_DBPEDIA = DataSet(
    name="dbpedia",
    does="Openings of Wikipedia articles about fourteen kinds of things (paper 003).",
    task="classify",
    forms=(
        _zhang_form("dbpedia_csv", tuple(_KINDS), 3, 560_000, 70_000, slice(1, None)),
        _hub_form("dbpedia_14", "content", tuple(_KINDS), 560_000, 70_000, verified=True),
        *_own_form("dbpedia", ("label",), 560_000, 70_000),
    ),
    where="dbpedia_csv.tgz by Xiang Zhang, or fancyzhx/dbpedia_14 on the hub",
    licence="Creative Commons Attribution-ShareAlike and the GNU Free Documentation License, says its readme.txt.",
    max_length=1000,
    words="{text: Article, label: Is about}",
    public="Anything but Wikipedia: news or reviews. Every row is an opening of a Wikipedia article.",
    attributes=(Attribute("label", _KINDS),),
)

_ASKED = {
    "ABBR": "abbreviation", "ENTY": "entity", "DESC": "description", "HUM": "human", "LOC": "location", "NUM": "number",
}  # fmt: skip
_TREC = DataSet(
    name="trec",
    does="Questions by what they ask for (papers 003 and 004).",
    task="classify",
    forms=(
        Form(
            "train_5500.label and TREC_10.label in Latin-1: each line LABEL:fine, a blank and a question",
            {"train": ("train_5500.label",), "test": ("TREC_10.label",)},
            partial(readers.read_leading, named=_ASKED, encoding="latin-1"), 5452,
            "https://cogcomp.seas.upenn.edu/Data/QA/QC/; load_trec in data_utils.py of tonyzhaozh/few-shot-learning",
            others=500,
        ),
        *_own_form("trec", ("label",), 5452, 500),
    ),
    where="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
    licence=_NO_LICENCE + " Li and Roth 2002.",
    max_length=200,
    words="questions",
    public="Other questions, film reviews, or openings of Wikipedia articles.",
    attributes=(
        Attribute(
            "label",
            {
                "abbreviation": "an abbreviation or what it stands for",
                "entity": "a thing",
                "description": "a description or a reason",
                "human": "a person or a group",
                "location": "a place",
                "number": "a number or a date",
            },
        ),
    ),
)  # fmt: skip


def _movie_dataset(name: str, tag: str, rows: int, others: int) -> DataSet:
    """Declare one kind of thing that questions about films name."""
    read = partial(readers.read_tagged, tag=tag)
    return DataSet(
        name=name,
        does=f"Questions about films that name their {tag.lower()}, which is a span of the text (paper 003).",
        task="span",
        forms=(
            Form(
                "the complex queries of the MIT Movie Corpus: a tag, a tab and a word a line",
                {"train": ("trivia10k13train.bio",), "test": ("trivia10k13test.bio",)}, read, rows,
                "https://groups.csail.mit.edu/sls/downloads/movie/; flair's NER_ENGLISH_MOVIE_COMPLEX",
                others=others,
            ),
            Form(
                "data/slot-movies of tonyzhaozh/few-shot-learning: a question a line, each word with its tag",
                {"train": ("train",), "test": ("test",)}, read, rows, "load_slot_movies in its data_utils.py",
                "slot-movies", others,
            ),
            *_own_form(name, ("label",), rows, others),
        ),
        where="https://groups.csail.mit.edu/sls/downloads/movie/",
        licence=_NO_LICENCE + " Liu et al. 2013.",
        max_length=400,
        words=f"{{text: Question about a film, label: {tag}}}",
        public=_FILM_QUESTIONS,
        attributes=(Attribute("label"),),
    )  # fmt: skip


_FILM = {
    "title": {"type": "string"}, "year": {"type": "integer"}, "cast": {"type": "array", "items": {"type": "string"}},
    "genres": {"type": "array", "items": {"type": "string"}}, "href": {"type": "string"}, "extract": {"type": "string"},
}  # fmt: skip
_films = partial(readers.read_films, keys=tuple(_FILM))
_WIKIMOVIES = DataSet(
    name="wikimovies",
    does="American films as JSON objects of six fields (paper 003).",
    task="json",
    forms=(
        Form(
            "movies-1900s.json and on of prust/wikipedia-movie-data: each a list of objects",
            {"train": ("movies-*.json",)}, _films, 27_412, "README.md of prust/wikipedia-movie-data",
            "wikipedia-movie-data", needed=("train",),
        ),
        Form(
            "movies.json of prust/wikipedia-movie-data: a list of objects",
            {"train": ("movies.json",)}, _films, 27_412, "README.md of prust/wikipedia-movie-data", needed=("train",),
        ),
        *(
            Form(
                "JSON lines of films", {"train": (name,)}, _films, 27_412, "docs/howto/datasets.md", needed=("train",)
            )
            for name in ("wikimovies.jsonl", "wikimovies_json.jsonl")
        ),
    ),
    where="https://github.com/prust/wikipedia-movie-data",
    licence="MIT for the gathering; Wikipedia's text is under CC BY-SA and the GNU Free Documentation License.",
    max_length=2000,
    words="json",
    public="Anything but Wikipedia: film reviews or news.",
    schema=MappingProxyType({"type": "object", "properties": _FILM, "required": list(_FILM)}),
    split="Paper 003 keeps films with all six fields. It states no split, so a fifth is cut unless --cut says another.",
)  # fmt: skip

KNOWN: Mapping[str, DataSet] = {
    each.name: each
    for each in (
        _SST2, _AGNEWS, _DISASTER, _YELP, _YELP_REVIEWS, _YELP_POLARITY, _OPENREVIEW, _PUBMED, _IMDB, _DBPEDIA, _TREC,
        _movie_dataset("mit_g", "Genre", 2953, 780), _movie_dataset("mit_d", "Director", 1561, 415), _WIKIMOVIES,
    )
}  # fmt: skip


def find_dataset(name: str) -> DataSet:
    """Return the data set of that name. Raises ParamsError if there is none."""
    if name not in KNOWN:
        raise ParamsError(f"NAME is {name!r}, which no data set here has.", f"Name one of {', '.join(KNOWN)}.")
    return KNOWN[name]
