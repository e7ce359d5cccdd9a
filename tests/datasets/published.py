"""Small made files of each form in which a data set is published, and the records in them."""

import json
from collections.abc import Mapping
from pathlib import Path

from palimpsest_lab.datasets.declaration import Item

FILM = {"title": "A", "year": 1990, "cast": ["B"], "genres": ["Drama"], "href": "A", "extract": "A is a film."}
TREEBANK = {
    "datasetSentences.txt": "sentence_index\tsentence\n1\tA -LRB- fine -RRB- clich\u00c3\u00a9 | film\n2\tSo-so .\n"
    "3\tDull .\n4\tFine .\n5\tNot in the dictionary\n6\tVoil\u00c3  .\n",
    "datasetSplit.txt": "sentence_index,splitset_label\n1,1\n2,1\n3,2\n4,3\n5,1\n6,1\n",
    "dictionary.txt": "A ( fine ) clich\u00e9 | film|0\nSo-so .|1\nDull .|2\nFine .|3\nVoil\u00e0 .|4\n",
    "sentiment_labels.txt": "phrase ids|sentiment values\n0|0.61\n1|0.6\n2|0.4\n3|0.9\n4|0.9\n",
}
ZHANG = '"3","He said ""no""","Second\\near a third\\"\n"4","Chips","Faster"\n'
TABLE = "text,label1,label2\n"
BIO = "O\twhat\nB-Genre\tblack\nI-Genre\tcomedy\nB-Director\tann\nI-Director\tlee\n\nO\twho\nB-Director\tbo\n"
SLOTS = (
    "what:O black:B-Genre comedy:I-Genre ann:B-Director lee:I-Director <=> <NULL>\nwho:O bo:B-Director at:O 10:15:O\n"
)
YELP = TABLE + '"Good, ""really""",Business Category: Bars,Review Stars: 4.0\n'
REVIEW = TABLE + '"Summary.\nWeak.",Area: General Machine Learning,"Recommendation: 3: reject, not good enough"\n'

# Data set, its files, and the records of the parts there are.
CASES: list[tuple[str, Mapping[str, str], Mapping[str, list[Item]]]] = [
    (
        "sst2",
        {f"stanfordSentimentTreebank/{name}": text for name, text in TREEBANK.items()},
        {
            "train": [Item("A ( fine ) clich\u00e9 | film", ("positive",)), Item("Voil\u00e0 .", ("positive",))],
            "dev": [Item("Fine .", ("positive",))],
            "test": [Item("Dull .", ("negative",))],
        },
    ),
    (
        "sst2",
        {"stsa.binary.train": "1 fine , really\n0 dull\n", "stsa.binary.dev": "0 no\n", "stsa.binary.test": "1 yes\n"},
        {"train": [Item("fine , really", ("positive",)), Item("dull", ("negative",))]},
    ),
    (
        "sst2",
        {"SST-2/train.tsv": 'sentence\tlabel\n" fine\t1\n', "SST-2/dev.tsv": "sentence\tlabel\ndull \t0\n"},
        {"train": [Item('" fine', ("positive",))], "test": [Item("dull", ("negative",))]},
    ),
    (
        "agnews",
        {"ag_news_csv/train.csv": ZHANG, "ag_news_csv/test.csv": "Class Index,Title,Description\n1,War,Peace\n"},
        {
            "train": [Item('He said "no" Second near a third', ("Business",)), Item("Chips Faster", ("Sci/Tech",))],
            "test": [Item("War Peace", ("World",))],
        },
    ),
    (
        "dbpedia",
        {"train.csv": '14,"Emma"," Emma is a novel."\n', "test.csv": '1,"Ford"," Ford makes cars."\n'},
        {"train": [Item("Emma is a novel.", ("WrittenWork",))], "test": [Item("Ford makes cars.", ("Company",))]},
    ),
    (
        "disaster",
        {"train.csv": 'id,keyword,location,text,target\n1,,,Fire!,1\n4,ablaze,"York, UK",I am fire,0\n'},
        {"train": [Item("Fire!", ("disaster",)), Item("I am fire", ("other",))]},
    ),
    ("yelp", {"yelp/train.csv": YELP, "yelp/test.csv": YELP}, {"train": [Item('Good, "really"', ("Bars", "4.0"))]}),
    (
        "yelp_reviews",
        {
            "yelp_dataset/yelp_academic_dataset_review.json": '{"review_id": "r", "user_id": "u1", "business_id": "b", '
            '"stars": 4.0, "useful": 0, "text": "Good.\\n\\nCheap.", "date": "2018-01-01 00:00:00"}\n'
        },
        {"train": [Item("Good.\n\nCheap.", ("4.0",), "u1")]},
    ),
    (
        "yelp_polarity",
        {"train.csv": '"1","Bad.\\n\\nA \\""star\\""."\n', "test.csv": '"2","Good."\n'},
        {"train": [Item('Bad. A "star".', ("negative",))], "test": [Item("Good.", ("positive",))]},
    ),
    (
        "openreview",
        {"openreview/train.csv": REVIEW, "openreview/dev.csv": REVIEW, "openreview/test.csv": REVIEW},
        {"test": [Item("Summary.\nWeak.", ("General Machine Learning", "3: reject, not good enough"))]},
    ),
    ("pubmed", {"train.csv": "text\nA trial.\n", "test.csv": "text\nB\n"}, {"train": [Item("A trial.")]}),
    (
        "imdb",
        {
            "aclImdb/train/neg/0_2.txt": "Bad.<br /><br />Awful.",
            "aclImdb/train/pos/0_9.txt": "Good.",
            "aclImdb/train/unsup/0_0.txt": "Left out.",
            "aclImdb/test/neg/1_1.txt": "No.",
            "aclImdb/test/pos/1_10.txt": "Yes.",
        },
        {"train": [Item("Bad. Awful.", ("negative",)), Item("Good.", ("positive",))]},
    ),
    (
        "trec",
        {
            "train_5500.label": "DESC:manner How does it work ?\nHUM:ind Who ?\n",
            "TREC_10.label": "NUM:dist How far ?\n",
        },
        {
            "train": [Item("How does it work ?", ("description",)), Item("Who ?", ("human",))],
            "test": [Item("How far ?", ("number",))],
        },
    ),
    (
        "mit_g",
        {"trivia10k13train.bio": BIO, "trivia10k13test.bio": BIO},
        {"train": [Item("what black comedy ann lee", ("black comedy",))]},
    ),
    (
        "mit_d",
        {"slot-movies/train": SLOTS, "slot-movies/test": SLOTS},
        {"test": [Item("what black comedy ann lee", ("ann lee",)), Item("who bo at 10:15", ("bo",))]},
    ),
    (
        "wikimovies",
        {
            "movies-1990s.json": json.dumps([FILM | {"thumbnail": "x"}, FILM | {"cast": []}]),
            "movies-2000s.json": json.dumps([FILM | {"year": 2001}]),
        },
        {"train": [Item(json.dumps(FILM)), Item(json.dumps(FILM | {"year": 2001}))]},
    ),
    ("wikimovies", {"wikimovies_json.jsonl": json.dumps(FILM) + "\n"}, {"train": [Item(json.dumps(FILM))]}),
]


def written(folder: Path, files: Mapping[str, str], encoding: str = "utf-8") -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(encoding))
    return folder
