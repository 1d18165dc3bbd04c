"""Texts that nobody may have learned from: those of the tests of a recipe, or given ones."""

from attendo.data.config import CorpusConfig
from attendo.data.sources import rows
from attendo.recipes.reproduce.texts import corpus_of
from attendo.recipes.run_config import RunConfig

TextPair = tuple[str, str]


def unseen_pairs(config: RunConfig, given: CorpusConfig | None = None) -> dict[str, list[TextPair]]:
    """By the name of their set. What cannot be read in them is not for us to tell."""
    corpora: dict[str, CorpusConfig | None] = {} if given is None else {"test": given}
    for test in () if config.reproduce is None else config.reproduce.test:
        for part in test.parts or (None,):
            one = test if part is None else test.of_part(part)
            name = test.name if part is None else f"{test.name} {part}"
            corpora.setdefault(name, corpus_of(one, config.data))
    return {
        name: [(row.source, row.target) for row in rows(corpus) if row.fault is None]
        for name, corpus in corpora.items()
        if corpus is not None and corpus not in config.data.validation
    }
