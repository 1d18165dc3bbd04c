"""Opening prepared data, valid and damaged."""

import json
import random
import shutil
from pathlib import Path

import pytest
from error_codes import fragment
from prepared_data import ListCorpus, prepare_all, sentences

from attendo.data.index import INDEX_FILE
from attendo.data.prepared import open_prepared
from attendo.errors import DataError
from attendo.model_files import json_sha256


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "data"
    pairs = sentences(300)
    pairs[5] = ("", "")
    prepare_all(folder, ListCorpus(pairs))
    return folder


@pytest.mark.slow
def test_R7_every_flipped_bit_of_every_file_is_found(intact: Path, tmp_path: Path) -> None:
    generator = random.Random(0)
    files = sorted(path.name for path in intact.iterdir())
    assert len(files) == 6
    folder = tmp_path / "data"
    shutil.copytree(intact, folder)
    for name in files:
        content = (intact / name).read_bytes()
        for bit in (generator.randrange(8 * len(content)) for _ in range(60)):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(damaged)
            assert name in open_error(folder), f"bit {bit}"
        (folder / name).write_bytes(content)
    assert open_prepared(folder, verify=True).pairs == 285


def test_R7_a_missing_or_truncated_file_is_found(intact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(intact, folder)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert path.name in open_error(folder, verify=False)
        path.unlink()
        assert path.name in open_error(folder, verify=False)
        path.write_bytes(content)


def test_a_folder_without_an_index_is_an_error(tmp_path: Path) -> None:
    assert fragment("index_read_failed") in open_error(tmp_path)
    (tmp_path / INDEX_FILE).write_text("{}")
    assert "is damaged" in open_error(tmp_path)
    (tmp_path / INDEX_FILE).write_text("[" * 100_000)
    assert "is damaged" in open_error(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, fragment("index_incompatible")),
        ({"surprise": 1}, fragment("index_incompatible")),
        ({"pairs": "many"}, fragment("index_incompatible")),
        ({"files": {"../secret": {"bytes": 1, "sha256": ""}}}, fragment("index_file_outside_folder")),
    ],
)
def test_an_index_with_wrong_content_is_rejected(
    intact: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(intact, folder)
    content = {**json.loads((folder / INDEX_FILE).read_text()), **change}
    content.pop("sha256")
    (folder / INDEX_FILE).write_text(json.dumps({**content, "sha256": json_sha256(content)}))
    assert message in open_error(folder)


def test_the_fingerprint_is_the_checksum_of_the_index(intact: Path) -> None:
    prepared = open_prepared(intact)
    assert json.loads((intact / INDEX_FILE).read_text())["sha256"] == prepared.fingerprint
    assert (prepared.folder, prepared.max_length, prepared.corpora[0].bad) == (intact, 1024, {"empty": 1})


def test_a_moved_folder_is_the_same_data(intact: Path, tmp_path: Path) -> None:
    shutil.copytree(intact, tmp_path / "elsewhere")
    moved = open_prepared(tmp_path / "elsewhere", verify=True)
    assert moved.fingerprint == open_prepared(intact).fingerprint
    assert moved.valid == open_prepared(intact).valid


def open_error(folder: Path, verify: bool = True) -> str:
    with pytest.raises(DataError) as caught:
        open_prepared(folder, verify)
    assert "\n" not in str(caught.value)
    return str(caught.value)
