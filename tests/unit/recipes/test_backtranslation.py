"""Back-translation: text of any format, noise, and pairs in the order of the text."""

import json
from pathlib import Path

import pytest
from error_codes import fragment, has_code
from tiny import SOURCES, Command, tiny_model, without_source

from attendo.errors import DataError, UsageError
from attendo.recipes import backtranslation
from attendo.recipes.backtranslation import BLANK, BackTranslation, Method, add_noise, list_texts

TEXT = [f"{source} {number}" for number in range(8) for source in SOURCES]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny_model(num_encoder_layers=1, num_decoder_layers=1).save(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mono.de"
    path.write_text("\n".join([*TEXT[:9], "", " ", *TEXT[9:]]) + "\n", "utf-8")
    return path


def make_work(folder: Path, *texts: Path, method: Method = "beam", tag: str | None = None) -> BackTranslation:
    return BackTranslation(folder / "out", texts, None, method, tag, 1)


def fill_outputs(work: BackTranslation, outputs: list[str]) -> None:
    lines = iter(outputs)
    work.output_folder.mkdir()
    for path in work.text_folder.iterdir():
        shard = [next(lines) for _ in path.read_text("utf-8").splitlines()]
        (work.output_folder / path.name).write_text("".join(f"{line}\n" for line in shard), "utf-8")


def test_text_is_copied_in_shards_without_blank_lines(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtranslation, "SHARD_LINES", 10)
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"source": "two\nlines\x85"}) + "\n", "utf-8")
    work = make_work(tmp_path, text, more)
    work.begin({})
    work.split()
    shards = [path.read_text("utf-8").split("\n")[:-1] for path in sorted(work.text_folder.iterdir())]
    assert [len(lines) for lines in shards] == [10] * (len(TEXT) // 10) + [len(TEXT) % 10 + 1]
    assert [line for lines in shards for line in lines] == [*TEXT, "two lines\x85"]


def test_pairs_with_a_blank_translation_are_left_out(tmp_path: Path, text: Path) -> None:
    work = make_work(tmp_path, text, tag="<BT>")
    work.begin({})
    work.split()
    fill_outputs(work, ["\0" if n == 3 else f"o\0ut {n}" for n in range(len(TEXT))])
    assert work.merge() == (len(TEXT) - 1, 1)
    source, target = (path.read_text("utf-8").split("\n")[:-1] for path in work.results)
    kept = [n for n in range(len(TEXT)) if n != 3]
    assert source == [f"<BT> out {n}" for n in kept]
    assert target == [TEXT[n] for n in kept]


def test_noise_has_the_rates_of_the_paper() -> None:
    words = [f"w{number}" for number in range(50)]
    noised = [add_noise(" ".join(words), 1, number).split() for number in range(400)]
    total = 400 * 50
    left = [word for line in noised for word in line]
    assert len(left) / total == pytest.approx(0.9, abs=0.01)
    assert left.count(BLANK) / len(left) == pytest.approx(0.1, abs=0.01)
    assert len({*map(tuple, noised)}) == 400


def test_shuffled_words_move_by_three_places_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtranslation, "_DELETED", 0.0)
    monkeypatch.setattr(backtranslation, "_REPLACED", 0.0)
    words = [f"w{number}" for number in range(60)]
    moves = set()
    for number in range(300):
        noised = add_noise(" ".join(words), 1, number).split()
        assert sorted(noised) == sorted(words)
        moves |= {noised.index(word) - place for place, word in enumerate(words)}
    assert moves == set(range(-3, 4))


def test_noise_depends_on_seed_and_line_only() -> None:
    text = " ".join(map(str, range(30)))
    assert add_noise(text, 1, 7) == add_noise(text, 1, 7) != add_noise(text, 1, 8)
    assert add_noise(text, 2, 7) != add_noise(text, 1, 7)
    assert all(add_noise("word", seed, 0) for seed in range(50)), "one word remains"


def test_noise_of_chinese_is_of_characters() -> None:
    assert any(1 < len(add_noise("我爱自然语言处理", 1, n).replace(BLANK, "_")) < 8 for n in range(20))
    assert " " not in add_noise("我爱自然语言处理", 1, 3)


def test_noise_of_chinese_with_spaces_keeps_its_words() -> None:
    words = ["我", "爱", "自然", "语言", "处理"]
    assert all({*add_noise(" ".join(words), 1, number).split()} <= {*words, BLANK} for number in range(20))


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (("--tag", "<BT>"), "<BT> "),
        (("--method", "sample", "--top-k", "3"), ""),
        (("--method", "noised-beam", "--beam", "2"), ""),
    ],
)
def test_the_command_writes_pairs_and_repeats_nothing(
    attendo: Command, model: Path, text: Path, tmp_path: Path, options: tuple[str, ...], first: str
) -> None:
    command = ("backtranslate", model, "--text", text, "--out", tmp_path / "out", *options)
    done = attendo(*command)
    assert done.code == 0, done.errors
    source, target = ((tmp_path / "out" / f"{side}.txt").read_text("utf-8") for side in ("source", "target"))
    assert target.split("\n")[:-1] == TEXT
    assert all(line.startswith(first) and line.strip() for line in source.split("\n")[:-1])
    again = attendo(*command)
    assert again.code == 0, again.errors
    assert (tmp_path / "out" / "source.txt").read_text("utf-8") == source


def test_another_command_in_the_folder_is_rejected(attendo: Command, model: Path, text: Path, tmp_path: Path) -> None:
    command = ("backtranslate", model, "--text", text, "--out", tmp_path / "out")
    assert attendo(*command).code == 0
    for change, name in ((("--seed", "2"), "seed"), (("--tag", "<x>"), "tag"), (("--beam", "2"), "beam")):
        done = attendo(*command, *change)
        assert done.code == 2
        assert fragment("backtranslation_settings_differ", settings=name) in done.errors
    text.write_text("other\n")
    assert fragment("backtranslation_settings_differ", settings="text") in attendo(*command).errors


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--top-k", "3"), "backtranslation_option_unused"),
        (("--method", "sample", "--beam", "3"), "backtranslation_option_unused"),
        (("--tag", "two words"), "backtranslation_tag_invalid"),
        (("--tag", ""), "backtranslation_tag_invalid"),
        (("--text", "missing.de"), "shards_not_found"),
    ],
)
def test_bad_options_are_one_line(
    attendo: Command, model: Path, text: Path, tmp_path: Path, options: tuple[str, ...], code: str
) -> None:
    done = attendo("backtranslate", model, "--text", text, "--out", tmp_path / "out", *options)
    assert done.code in (2, 3)
    assert fragment(code) in done.errors
    assert done.errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_source_is_rejected(attendo: Command, text: Path, tmp_path: Path) -> None:
    without_source().save(tmp_path / "lm")
    done = attendo("backtranslate", tmp_path / "lm", "--text", text, "--out", tmp_path / "out")
    assert fragment("distillation_model_without_source") in done.errors


def test_empty_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    work = make_work(tmp_path, tmp_path / "empty.txt")
    work.begin({})
    with pytest.raises(DataError, check=has_code("file_is_empty")):
        work.split()
    assert not work.text_folder.exists()


def test_texts_are_files_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("a.de", "b.txt", "c.txt"):
        (tmp_path / name).write_text("x\n")
    assert list_texts([str(tmp_path / "a.de"), str(tmp_path / "*.txt")]) == [
        tmp_path / f for f in ("a.de", "b.txt", "c.txt")
    ]
    with pytest.raises((DataError, UsageError), check=has_code("shards_not_found")):
        list_texts([str(tmp_path / "d.de")])
