"""The main script of a text."""

import pytest

from attendo.text.scripts import main_script


@pytest.mark.parametrize(
    ("texts", "script"),
    [
        ([], "spaced"),
        (["", "  ", "123 !?"], "spaced"),
        (["plain English"], "spaced"),
        (["Grüße aus Köln", "Привет, мир", "שלום"], "spaced"),
        (["我爱自然语言处理"], "han"),
        (["我 爱 NLP", "这只 猫 坐下 了"], "han"),
        (["an English text with 两 字"], "spaced"),
        (["猫がいる", "ネコ"], "kana"),
        (["東京都渋谷区に住んでいる"], "kana"),
        (["他喜欢日本歌曲《さくら》,也喜欢中国的传统音乐和各种各样的美食,周末常常去听音乐会"], "han"),
        (["고양이가 있다"], "hangul"),
        (["แมวนั่ง"], "unspaced"),
        (["ខ្មែរ", "ລາວ", "မြန်မာ"], "unspaced"),
        (["𠀀𠀁𠀂"], "han"),
    ],
)
def test_the_majority_of_letters_decides_the_script(texts: list[str], script: str) -> None:
    assert main_script(texts) == script


def test_a_tie_is_spaced() -> None:
    assert main_script(["ab 两字"]) == "spaced"
    assert main_script(["a 两字"]) == "han"
