"""Table of languages: ISO 639 codes, names, scripts. Tags that clients send are mapped to its codes."""

import re
from collections.abc import Collection


def language_code(tag: str) -> str | None:
    """Return the code of a tag such as en, EN-US, en_GB, eng_Latn or zh-Hans; None if the language is unknown.

    Case, regions and scripts are ignored, except for Chinese: zt, Hant, and TW, HK or MO give zt.
    """
    first, *subtags = _split_tag(tag)
    code = _OTHER_TAGS.get(first, first)
    if code == "zh" and not _TRADITIONAL.isdisjoint(subtags) and "hans" not in subtags:
        return "zt"
    return code if code in _NAMES else None


def match_language(tag: str, codes: Collection[str]) -> str | None:
    """Return the one of `codes` that matches a tag. An equivalent code matches too, such as zt for zh."""
    code = language_code(tag)
    if code is None or code in codes:
        return code
    return next((each for each in _EQUIVALENT_CODES.get(code, ()) if each in codes), None)


def language_name(code: str) -> str:
    """Return the English name, or the code itself if it is unknown."""
    return _NAMES.get(code, code)


def language_script(code: str) -> str:
    """Return the main script of a language; latin if it is unknown."""
    return _SCRIPTS.get(_OTHER_TAGS.get(code, code), "latin")


def _split_tag(tag: str) -> list[str]:
    tag = tag[: _MAX_TAG_LENGTH + 1].strip().lower().replace("_", "-")
    return tag.split("-") if len(tag) <= _MAX_TAG_LENGTH and _TAG.fullmatch(tag) else [""]


_MAX_TAG_LENGTH = 35
_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{1,8})*")
_TRADITIONAL = frozenset(("hant", "tw", "hk", "mo"))
# Codes of languages whose readers understand both.
_EQUIVALENT_CODES = {"zh": ("zt",), "zt": ("zh",), "nb": ("no",), "no": ("nb",)}

# Former and alternative codes of a language.
_OLD_TAGS = (
    "iw he|in id|ji yi|jw jv|mo ro|fil tl|pb pt|cmn zh|chi zh|ger de|fre fr|dut nl|gre el|per fa|cze cs|slo sk|rum ro"
)
_MORE_TAGS = "alb sq|arm hy|baq eu|bur my|geo ka|ice is|mac mk|may ms|mao mi|tib bo|wel cy|arb ar|pes fa|lvs lv|ekk et"
_REST_TAGS = "zsm ms|npi ne|ory or|azj az|uzn uz|khk mn|pbt ps|swh sw|als sq|plt mg|ydd yi|kmr ku|quy qu|gaz om"

# Code, three-letter code, English name with _ for a space, script if it is not Latin.
_TABLE = """
aa aar Afar, ab abk Abkhazian, ae ave Avestan, af afr Afrikaans, ak aka Akan, am amh Amharic ethiopic,
an arg Aragonese, ar ara Arabic arabic, as asm Assamese bengali, av ava Avaric, ay aym Aymara, az aze Azerbaijani,
ba bak Bashkir cyrillic, be bel Belarusian cyrillic, bg bul Bulgarian cyrillic, bi bis Bislama, bm bam Bambara,
bn ben Bengali bengali, bo bod Tibetan tibetan, br bre Breton, bs bos Bosnian, ca cat Catalan, ce che Chechen,
ch cha Chamorro, co cos Corsican, cr cre Cree, cs ces Czech, cu chu Church_Slavic, cv chv Chuvash cyrillic,
cy cym Welsh, da dan Danish, de deu German, dv div Divehi, dz dzo Dzongkha tibetan, ee ewe Ewe, el ell Greek greek,
en eng English, eo epo Esperanto, es spa Spanish, et est Estonian, eu eus Basque, fa fas Persian arabic, ff ful Fulah,
fi fin Finnish, fj fij Fijian, fo fao Faroese, fr fra French, fy fry Western_Frisian, ga gle Irish,
gd gla Scottish_Gaelic, gl glg Galician, gn grn Guarani, gu guj Gujarati gujarati, gv glv Manx, ha hau Hausa,
he heb Hebrew hebrew, hi hin Hindi devanagari, ho hmo Hiri_Motu, hr hrv Croatian, ht hat Haitian, hu hun Hungarian,
hy hye Armenian armenian, hz her Herero, ia ina Interlingua, id ind Indonesian, ie ile Interlingue, ig ibo Igbo,
ii iii Sichuan_Yi, ik ipk Inupiaq, io ido Ido, is isl Icelandic, it ita Italian, iu iku Inuktitut,
ja jpn Japanese kana, jv jav Javanese, ka kat Georgian georgian, kg kon Kongo, ki kik Kikuyu, kj kua Kuanyama,
kk kaz Kazakh cyrillic, kl kal Greenlandic, km khm Khmer khmer, kn kan Kannada kannada, ko kor Korean hangul,
kr kau Kanuri, ks kas Kashmiri, ku kur Kurdish, kv kom Komi, kw cor Cornish, ky kir Kyrgyz cyrillic, la lat Latin,
lb ltz Luxembourgish, lg lug Ganda, li lim Limburgish, ln lin Lingala, lo lao Lao lao, lt lit Lithuanian,
lu lub Luba-Katanga, lv lav Latvian, mg mlg Malagasy, mh mah Marshallese, mi mri Maori, mk mkd Macedonian cyrillic,
ml mal Malayalam malayalam, mn mon Mongolian cyrillic, mr mar Marathi devanagari, ms msa Malay, mt mlt Maltese,
my mya Burmese myanmar, na nau Nauru, nb nob Norwegian_Bokmål, nd nde North_Ndebele, ne nep Nepali devanagari,
ng ndo Ndonga, nl nld Dutch, nn nno Norwegian_Nynorsk, no nor Norwegian, nr nbl South_Ndebele, nv nav Navajo,
ny nya Chichewa, oc oci Occitan, oj oji Ojibwa, om orm Oromo, or ori Odia oriya, os oss Ossetian cyrillic,
pa pan Punjabi gurmukhi, pi pli Pali, pl pol Polish, ps pus Pashto arabic, pt por Portuguese, qu que Quechua,
rm roh Romansh, rn run Rundi, ro ron Romanian, ru rus Russian cyrillic, rw kin Kinyarwanda, sa san Sanskrit devanagari,
sc srd Sardinian, sd snd Sindhi arabic, se sme Northern_Sami, sg sag Sango, si sin Sinhala sinhala, sk slk Slovak,
sl slv Slovenian, sm smo Samoan, sn sna Shona, so som Somali, sq sqi Albanian, sr srp Serbian cyrillic, ss ssw Swati,
st sot Southern_Sotho, su sun Sundanese, sv swe Swedish, sw swa Swahili, ta tam Tamil tamil, te tel Telugu telugu,
tg tgk Tajik cyrillic, th tha Thai thai, ti tir Tigrinya ethiopic, tk tuk Turkmen, tl tgl Tagalog, tn tsn Tswana,
to ton Tongan, tr tur Turkish, ts tso Tsonga, tt tat Tatar cyrillic, tw twi Twi, ty tah Tahitian, ug uig Uyghur arabic,
uk ukr Ukrainian cyrillic, ur urd Urdu arabic, uz uzb Uzbek, ve ven Venda, vi vie Vietnamese, vo vol Volapük,
wa wln Walloon, wo wol Wolof, xh xho Xhosa, yi yid Yiddish hebrew, yo yor Yoruba, za zha Zhuang, zh zho Chinese han,
zt zht Chinese_(traditional) han, zu zul Zulu, arz arz Egyptian_Arabic arabic, ast ast Asturian,
bho bho Bhojpuri devanagari, ceb ceb Cebuano, ckb ckb Central_Kurdish arabic, haw haw Hawaiian, hmn hmn Hmong,
ilo ilo Ilocano, kab kab Kabyle, lzh lzh Classical_Chinese han, mai mai Maithili devanagari, scn scn Sicilian,
szl szl Silesian, wuu wuu Wu_Chinese han, yue yue Cantonese han
"""
_ROWS = [row.split() for row in _TABLE.split(",")]
_NAMES = {code: name.replace("_", " ") for code, _, name, *_ in _ROWS}
_SCRIPTS = {code: script[0] for code, _, _, *script in _ROWS if script}
_OTHER_TAGS = {three: code for code, three, *_ in _ROWS} | dict(
    pair.split(" ") for pair in f"{_OLD_TAGS}|{_MORE_TAGS}|{_REST_TAGS}".split("|")
)
ISO_639_1 = frozenset(code for code in _NAMES if len(code) == 2) - {"zt"}
