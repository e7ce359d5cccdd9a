"""Who writes for `evolve`: an author made from its settings. It is handed public files and nothing private."""

from palimpsest.methods.evolve import authors
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.corpus import CorpusAuthor
from palimpsest.methods.evolve.instructed import InstructedAuthor
from palimpsest.methods.shared.tools import Encode, Tools
from palimpsest.models.chat.kept import open_chat
from palimpsest.models.chat.settings import LocalChatSettings


def author_of(tools: Tools, encode: Encode) -> Author:
    """The author that the settings describe.

    Raises:
        ModelError: a model cannot be loaded.
        DataError: it is not public.
        BackendError: the key of an endpoint is not set.
    """
    settings = tools.author()
    if isinstance(settings, authors.Corpus):
        return _corpus(tools, settings, encode)
    if isinstance(settings, authors.Base):
        nearest = authors.Corpus(kind="corpus", neighbours=1)  # it starts texts, and varies none
        corpus = _corpus(tools, nearest, encode) if settings.start != "prompt" else None
        return BaseAuthor(settings, tools.base(), tools.seed, corpus)
    folder = tools.author_model() if isinstance(settings, LocalChatSettings) else None
    chat = open_chat(settings, tools.answers, tools.seed, folder)
    return InstructedAuthor(settings, chat, tools.schema.labels, tools.seed)


def _corpus(tools: Tools, settings: authors.Corpus, encode: Encode) -> CorpusAuthor:
    texts, kept = tools.texts(), tools.embeddings()
    if not kept:
        return CorpusAuthor(settings, texts, encode(texts), {}, tools.seed, encode)
    descriptions = dict(zip(tools.schema.label_names, kept["descriptions"], strict=True))
    return CorpusAuthor(settings, texts, kept["texts"], descriptions, tools.seed, encode)
