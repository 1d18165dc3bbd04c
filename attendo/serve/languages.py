"""Language codes: maps the tags that clients send to ISO 639-1 codes, and to zt for traditional Chinese."""

import re
from collections.abc import Collection
from typing import NamedTuple


class LanguageInfo(NamedTuple):
    code: str
    english: str
    chinese: str


def language_code(tag: str) -> str | None:
    """Return the code of a tag such as en, EN-US, en_GB, eng_Latn or zh-Hans; None if the language is unknown.

    Case, regions and scripts are ignored, except for Chinese: zt, Hant, and TW, HK or MO give zt.
    """
    first, *subtags = _split_tag(tag)
    code = _OTHER_TAGS.get(first, first)
    if code == "zh" and not _TRADITIONAL.isdisjoint(subtags) and "hans" not in subtags:
        return "zt"
    return code if code in _LANGUAGES else None


def match_language(tag: str, codes: Collection[str]) -> str | None:
    """Return the one of `codes` that matches a tag. An equivalent code matches too, such as zt for zh."""
    code = language_code(tag)
    if code is None or code in codes:
        return code
    return next((each for each in _EQUIVALENT_CODES.get(code, ()) if each in codes), None)


def language_name(code: str) -> str:
    """Return the English name, or the code itself if it is unknown."""
    return _LANGUAGES[code].english if code in _LANGUAGES else code


def language_name_zh(code: str) -> str:
    """Return the Chinese name, or the code itself if it is unknown."""
    return _LANGUAGES[code].chinese if code in _LANGUAGES else code


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

# Code, three-letter code, English name, Chinese name.
_TABLE = """
aa aar Afar 阿法尔语
ab abk Abkhazian 阿布哈兹语
ae ave Avestan 阿维斯陀语
af afr Afrikaans 南非荷兰语
ak aka Akan 阿坎语
am amh Amharic 阿姆哈拉语
an arg Aragonese 阿拉贡语
ar ara Arabic 阿拉伯语
as asm Assamese 阿萨姆语
av ava Avaric 阿瓦尔语
ay aym Aymara 艾马拉语
az aze Azerbaijani 阿塞拜疆语
ba bak Bashkir 巴什基尔语
be bel Belarusian 白俄罗斯语
bg bul Bulgarian 保加利亚语
bi bis Bislama 比斯拉马语
bm bam Bambara 班巴拉语
bn ben Bengali 孟加拉语
bo bod Tibetan 藏语
br bre Breton 布列塔尼语
bs bos Bosnian 波斯尼亚语
ca cat Catalan 加泰罗尼亚语
ce che Chechen 车臣语
ch cha Chamorro 查莫罗语
co cos Corsican 科西嘉语
cr cre Cree 克里语
cs ces Czech 捷克语
cu chu Church_Slavic 教会斯拉夫语
cv chv Chuvash 楚瓦什语
cy cym Welsh 威尔士语
da dan Danish 丹麦语
de deu German 德语
dv div Divehi 迪维希语
dz dzo Dzongkha 宗喀语
ee ewe Ewe 埃维语
el ell Greek 希腊语
en eng English 英语
eo epo Esperanto 世界语
es spa Spanish 西班牙语
et est Estonian 爱沙尼亚语
eu eus Basque 巴斯克语
fa fas Persian 波斯语
ff ful Fulah 富拉语
fi fin Finnish 芬兰语
fj fij Fijian 斐济语
fo fao Faroese 法罗语
fr fra French 法语
fy fry Western_Frisian 西弗里斯兰语
ga gle Irish 爱尔兰语
gd gla Scottish_Gaelic 苏格兰盖尔语
gl glg Galician 加利西亚语
gn grn Guarani 瓜拉尼语
gu guj Gujarati 古吉拉特语
gv glv Manx 马恩语
ha hau Hausa 豪萨语
he heb Hebrew 希伯来语
hi hin Hindi 印地语
ho hmo Hiri_Motu 希里莫图语
hr hrv Croatian 克罗地亚语
ht hat Haitian 海地克里奥尔语
hu hun Hungarian 匈牙利语
hy hye Armenian 亚美尼亚语
hz her Herero 赫雷罗语
ia ina Interlingua 国际语
id ind Indonesian 印度尼西亚语
ie ile Interlingue 西方国际语
ig ibo Igbo 伊博语
ii iii Sichuan_Yi 凉山彝语
ik ipk Inupiaq 伊努皮克语
io ido Ido 伊多语
is isl Icelandic 冰岛语
it ita Italian 意大利语
iu iku Inuktitut 因纽特语
ja jpn Japanese 日语
jv jav Javanese 爪哇语
ka kat Georgian 格鲁吉亚语
kg kon Kongo 刚果语
ki kik Kikuyu 基库尤语
kj kua Kuanyama 宽亚玛语
kk kaz Kazakh 哈萨克语
kl kal Greenlandic 格陵兰语
km khm Khmer 高棉语
kn kan Kannada 卡纳达语
ko kor Korean 韩语
kr kau Kanuri 卡努里语
ks kas Kashmiri 克什米尔语
ku kur Kurdish 库尔德语
kv kom Komi 科米语
kw cor Cornish 康沃尔语
ky kir Kyrgyz 吉尔吉斯语
la lat Latin 拉丁语
lb ltz Luxembourgish 卢森堡语
lg lug Ganda 卢干达语
li lim Limburgish 林堡语
ln lin Lingala 林加拉语
lo lao Lao 老挝语
lt lit Lithuanian 立陶宛语
lu lub Luba-Katanga 卢巴语
lv lav Latvian 拉脱维亚语
mg mlg Malagasy 马达加斯加语
mh mah Marshallese 马绍尔语
mi mri Maori 毛利语
mk mkd Macedonian 马其顿语
ml mal Malayalam 马拉雅拉姆语
mn mon Mongolian 蒙古语
mr mar Marathi 马拉地语
ms msa Malay 马来语
mt mlt Maltese 马耳他语
my mya Burmese 缅甸语
na nau Nauru 瑙鲁语
nb nob Norwegian_Bokmål 书面挪威语
nd nde North_Ndebele 北恩德贝勒语
ne nep Nepali 尼泊尔语
ng ndo Ndonga 恩东加语
nl nld Dutch 荷兰语
nn nno Norwegian_Nynorsk 新挪威语
no nor Norwegian 挪威语
nr nbl South_Ndebele 南恩德贝勒语
nv nav Navajo 纳瓦霍语
ny nya Chichewa 齐切瓦语
oc oci Occitan 奥克语
oj oji Ojibwa 奥吉布瓦语
om orm Oromo 奥罗莫语
or ori Odia 奥里亚语
os oss Ossetian 奥塞梯语
pa pan Punjabi 旁遮普语
pi pli Pali 巴利语
pl pol Polish 波兰语
ps pus Pashto 普什图语
pt por Portuguese 葡萄牙语
qu que Quechua 克丘亚语
rm roh Romansh 罗曼什语
rn run Rundi 隆迪语
ro ron Romanian 罗马尼亚语
ru rus Russian 俄语
rw kin Kinyarwanda 卢旺达语
sa san Sanskrit 梵语
sc srd Sardinian 撒丁语
sd snd Sindhi 信德语
se sme Northern_Sami 北萨米语
sg sag Sango 桑戈语
si sin Sinhala 僧伽罗语
sk slk Slovak 斯洛伐克语
sl slv Slovenian 斯洛文尼亚语
sm smo Samoan 萨摩亚语
sn sna Shona 绍纳语
so som Somali 索马里语
sq sqi Albanian 阿尔巴尼亚语
sr srp Serbian 塞尔维亚语
ss ssw Swati 斯瓦蒂语
st sot Southern_Sotho 南索托语
su sun Sundanese 巽他语
sv swe Swedish 瑞典语
sw swa Swahili 斯瓦希里语
ta tam Tamil 泰米尔语
te tel Telugu 泰卢固语
tg tgk Tajik 塔吉克语
th tha Thai 泰语
ti tir Tigrinya 提格里尼亚语
tk tuk Turkmen 土库曼语
tl tgl Tagalog 他加禄语
tn tsn Tswana 茨瓦纳语
to ton Tongan 汤加语
tr tur Turkish 土耳其语
ts tso Tsonga 聪加语
tt tat Tatar 鞑靼语
tw twi Twi 契维语
ty tah Tahitian 塔希提语
ug uig Uyghur 维吾尔语
uk ukr Ukrainian 乌克兰语
ur urd Urdu 乌尔都语
uz uzb Uzbek 乌兹别克语
ve ven Venda 文达语
vi vie Vietnamese 越南语
vo vol Volapük 沃拉普克语
wa wln Walloon 瓦隆语
wo wol Wolof 沃洛夫语
xh xho Xhosa 科萨语
yi yid Yiddish 意第绪语
yo yor Yoruba 约鲁巴语
za zha Zhuang 壮语
zh zho Chinese 中文
zt zht Chinese_(traditional) 繁体中文
zu zul Zulu 祖鲁语
arz arz Egyptian_Arabic 埃及阿拉伯语
ast ast Asturian 阿斯图里亚斯语
bho bho Bhojpuri 博杰普尔语
ceb ceb Cebuano 宿务语
ckb ckb Central_Kurdish 中库尔德语
haw haw Hawaiian 夏威夷语
hmn hmn Hmong 苗语
ilo ilo Ilocano 伊洛卡诺语
kab kab Kabyle 卡拜尔语
lzh lzh Classical_Chinese 文言文
mai mai Maithili 迈蒂利语
scn scn Sicilian 西西里语
szl szl Silesian 西里西亚语
wuu wuu Wu_Chinese 吴语
yue yue Cantonese 粤语
"""
_ROWS = [line.split(" ") for line in _TABLE.strip().splitlines()]
_LANGUAGES = {code: LanguageInfo(code, english.replace("_", " "), chinese) for code, _, english, chinese in _ROWS}
_OTHER_TAGS = {three: code for code, three, _, _ in _ROWS} | dict(
    pair.split(" ") for pair in f"{_OLD_TAGS}|{_MORE_TAGS}|{_REST_TAGS}".split("|")
)
