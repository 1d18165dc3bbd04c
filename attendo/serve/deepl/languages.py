"""Languages by the names that DeepL's clients have for them."""

from collections.abc import Collection

from attendo.serve.deepl.replies import LanguageReply
from attendo.serve.errors import Refusal
from attendo.serve.languages import closest, name_of
from attendo.serve.office import Office

# Clients refuse these targets without a region; to a model here the regions are the same.
_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_NAMES = {"zt": "ZH-HANT", "no": "NB"}


def told(code: str) -> str:
    """EN for en."""
    return _NAMES.get(code, code.upper())


def meant(tag: str, codes: Collection[str]) -> str:
    """The code of EN-US or ZH-HANS, among those that are served."""
    code = closest(tag, codes)
    if code is None:
        raise Refusal("unknown_language", {"param": "target_lang"}, language=tag)
    return code


def sources(office: Office) -> list[LanguageReply]:
    return [LanguageReply(language=told(code), name=name_of(code)) for code in office.languages()]


def targets(office: Office) -> list[LanguageReply]:
    listed = [
        (tag, name)
        for code in target_codes(office)
        for tag, name in _REGIONS.get(code, {told(code): name_of(code)}).items()
    ]
    return [LanguageReply(language=tag, name=name, supports_formality=False) for tag, name in listed]


def target_codes(office: Office) -> list[str]:
    return list(dict.fromkeys(target for _, target in office.pairs()))


def pair_of(office: Office, source: str | None, target: str) -> tuple[str | None, str]:
    """As codes; without a source it is to be found out."""
    from_code = meant(source, office.languages()) if source else None
    return from_code, meant(target, target_codes(office))
