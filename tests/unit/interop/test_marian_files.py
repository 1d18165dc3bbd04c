"""Files of Marian: settings, vocabularies, npz and zip files, and what is refused by name."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marian_folders import FOLDER, NAMES, copy_folder, load_marian, write_zip

from attendo.errors import ModelError
from attendo.interop.import_model import is_marian, read_import
from attendo.interop.marian import archive
from attendo.interop.marian.archive import ModelFiles, open_folder, open_zip
from attendo.interop.marian.parameters import block_parameters
from attendo.interop.marian.settings import MarianSettings, parse_settings
from attendo.interop.marian.vocabulary import read_vocabulary
from attendo.interop.marian.yaml_text import read_key, read_scalar, write_scalar

SETTINGS_MEMBER = "special:model.yml.npy"


def refuse(read: Callable[[], object]) -> ModelError:
    """The error, which has one short line."""
    with pytest.raises(ModelError) as error:
        read()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 900
    return error.value


def parse(text: str) -> MarianSettings:
    return parse_settings("decoder.yml", text.encode())


def test_settings_keep_every_value_as_text_until_it_is_asked_for() -> None:
    found = parse(
        "# a comment\n---\nmodels:\n  - a.npz\nvocabs: [b.yml, 'c.yml']\nbeam-size: 6  # hypotheses\nnormalize: 0.6\n"
        'type: "transformer"\nempty: ""\nlayers:\n  []\nlist:\n- 1\n- "two words"\nflag: true\nname: null\n'
    )
    assert found.items("models") == ("a.npz",)
    assert found.items("vocabs") == ("b.yml", "c.yml")
    assert found.count("beam-size", 1) == 6
    assert found.number("normalize", 0.0) == 0.6
    assert found.text("type") == "transformer"
    assert found.text("empty", "full") == ""
    assert found.items("layers") == ()
    assert found.items("list") == ("1", "two words")
    assert found.flag("flag")
    assert found.text("name") == "null"
    assert found.count("missing", 3) == 3


@pytest.mark.parametrize("padding", [b"\0", b"\0" * 200])
def test_nuls_behind_the_settings_are_removed(padding: bytes) -> None:
    assert parse_settings("model.npz", b"version: v1.9" + padding).text("version") == "v1.9"


@pytest.mark.parametrize("text", ["just words", "a: 1\na: 2", "- item", "a: [1, 2", "a: {b: 1}\n  c: 1", 'a: "open'])
def test_a_line_that_is_no_setting_is_named(text: str) -> None:
    assert refuse(lambda: parse(text)).code == "marian_settings_line_invalid"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("n: six", lambda found: found.count("n", 1)),
        ("n: 99999999999999999999", lambda found: found.count("n", 1)),
        ("n: nan", lambda found: found.number("n", 1.0)),
        ("n: maybe", lambda found: found.flag("n")),
        ("n: [1]", lambda found: found.text("n")),
        ("n: [1, x]", lambda found: found.counts("n")),
    ],
)
def test_a_value_of_the_wrong_type_is_named(text: str, read: Callable[[MarianSettings], object]) -> None:
    assert refuse(lambda: read(parse(text))).code == "json_field_invalid"


@pytest.mark.parametrize(
    ("line", "token"),
    [
        ("tok: 7", "tok"),
        ("yes: 7", "yes"),
        ("~: 7", "~"),
        ("a:b: 7", "a:b"),
        ("::: 7", "::"),
        (r'"t\"ok\\": 7', 't"ok\\'),
        (r'"\x85\u2028\U0001F600\t": 7', "\x85\u2028\U0001f600\t"),
        ("'it''s': 7", "it's"),
        ("'\"': 7", '"'),
        ('":": 7', ":"),
        ("\u3000: 7", "\u3000"),
        ("\u2581: 7", "▁"),
    ],
)
def test_tokens_of_a_vocabulary_line(line: str, token: str) -> None:
    assert read_key(line) == (token, "7")


@pytest.mark.parametrize(
    "token", ['"', "\\", "'", "\n", "\x00", "\x85", "\ufeff", "\u2028", "▁the", ":", "# x", "\U0001f600"]
)
def test_a_written_token_is_read_back(token: str) -> None:
    assert read_scalar(write_scalar(token)) == token
    assert read_key(f"{write_scalar(token)}: 3") == (token, "3")


def write_files(folder: Path, name: str, content: str | bytes) -> ModelFiles:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_folder(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.yml", "</s>: 0\n<unk>: 2\n1: 1\n? very long\n: 3\n"),
        ("v.json", '{"</s>": 0, "<unk>": 2, "1": 1, "very long": 3}'),
        ("v.yml", '{"</s>": 0, "<unk>": 2, "1": 1, "very long": 3}'),
        ("v.vocab", "</s>\n1\n<unk>\nvery long\n"),
        ("v.vocab", "</s>\r\n1\r\n<unk>\r\nvery long"),
    ],
)
def test_all_kinds_of_vocabularies_give_ids_by_name(tmp_path: Path, name: str, content: str) -> None:
    found = read_vocabulary(write_files(tmp_path, name, content), name)
    assert found.ids == {"</s>": 0, "1": 1, "<unk>": 2, "very long": 3}
    assert (found.eos, found.unk) == (0, 2)


def test_names_of_nematus_are_accepted_with_their_ids(tmp_path: Path) -> None:
    found = read_vocabulary(write_files(tmp_path, "v.yml", "eos: 0\nUNK: 1\n"), "v.yml")
    assert (found.eos, found.unk) == (0, 1)
    error = refuse(lambda: read_vocabulary(write_files(tmp_path, "w.yml", "eos: 1\nUNK: 0\n"), "w.yml"))
    assert error.code == "marian_vocabulary_lacks_token"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("v.yml", "</s>: 0\n<unk>: 0\n", "vocabulary_ids_invalid"),
        ("v.yml", "</s>: 0\n</s>: 1\n", "marian_vocabulary_line_invalid"),
        ("v.yml", "</s>: 0\n<unk>: one\n", "marian_vocabulary_line_invalid"),
        ("v.yml", "</s>: 0\n<unk>: 1\nx: -1\n", "marian_vocabulary_line_invalid"),
        ("v.yml", "</s>: 0\n<unk>: 1\nx: 99999999999\n", "marian_vocabulary_line_invalid"),
        ("v.yml", '</s>: 0\n<unk>: 1\n"x: 2\n', "marian_vocabulary_line_invalid"),
        ("v.yml", '</s>: 0\n<unk>: 1\n"\\ud800": 2\n', "marian_vocabulary_line_invalid"),
        ("v.yml", "</s>: 0\n", "marian_vocabulary_lacks_token"),
        ("v.yml", "", "vocabulary_ids_invalid"),
        ("v.yml", b"\xff\xfe: 0\n", "model_file_not_utf8"),
        ("v.json", "{", "json_syntax_invalid"),
        ("v.json", '{"</s>": 0, "<unk>": 1.5}', "vocabulary_ids_invalid"),
        ("v.vocab", "</s>\n<unk>\nx\nx\n", "marian_vocabulary_line_invalid"),
        ("v.vocab", "</s>\n\n<unk>\n", "marian_vocabulary_line_invalid"),
        ("v.spm", b"not a model", "sentencepiece_model_invalid"),
        ("v.fsv", "x", "marian_vocabulary_factored"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, name: str, content: str | bytes, code: str) -> None:
    files = write_files(tmp_path, name, content)
    assert refuse(lambda: read_vocabulary(files, name)).code == code


def rewrite_npz(folder: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """Change the members of model.npz."""
    path = folder / "model.npz"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0))
    return file.getvalue()


def change_settings(members: dict[str, bytes], **changes: str) -> None:
    text = np.load(io.BytesIO(members[SETTINGS_MEMBER])).tobytes().rstrip(b"\0").decode()
    lines, skipped = [], False
    for line in text.split("\n"):
        name = line.split(":")[0].replace("-", "_")
        if not line.startswith(" "):
            skipped = name in changes
        if not skipped:
            lines.append(line)
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in changes.items()]
    members[SETTINGS_MEMBER] = npy(np.frombuffer("\n".join(lines).encode() + b"\0", np.int8))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"type": "s2s"}, "type"),
        ({"transformer_decoder_autoreg": "average-attention"}, "transformer-decoder-autoreg"),
        ({"transformer_decoder_autoreg": "rnn", "dec_cell": "gru"}, "gru"),
        ({"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru", "dec_cell_high_depth": "2"}, "dec-cell-high-depth"),
        ({"transformer_no_projection": "true"}, "transformer-no-projection"),
        ({"transformer_pool": "true"}, "transformer-pool"),
        ({"right_left": "true"}, "right-left"),
        ({"transformer_train_position_embeddings": "true"}, "transformer-train-position-embeddings"),
        ({"transformer_disable_position_embeddings": "true"}, "transformer-disable-position-embeddings"),
        ({"transformer_no_bias": "true"}, "transformer-no-bias"),
        ({"transformer_no_affine": "true"}, "transformer-no-affine"),
        ({"ulr": "true"}, "ulr"),
        ({"skip": "true"}, "skip"),
        ({"transformer_tied_layers": "[1, 1]"}, "transformer-tied-layers"),
        ({"transformer_ffn_depth": "3"}, "transformer-ffn-depth"),
        ({"transformer_decoder_ffn_depth": "1"}, "transformer-decoder-ffn-depth"),
        ({"transformer_decoder_dim_ffn": "48"}, "transformer-decoder-dim-ffn"),
        ({"transformer_attention_mask": "alibi"}, "alibi"),
        ({"factors_combine": "concat"}, "factors-combine"),
        ({"lemma_dim_emb": "8"}, "lemma-dim-emb"),
        ({"input_types": "[sequence, class]"}, "input-types"),
        ({"transformer_ffn_activation": "tanh"}, "transformer-ffn-activation"),
        ({"transformer_ffn_activation": "gelu", "version": "v1.11.0"}, "gelu"),
        ({"transformer_postprocess": "dhn"}, "dhn"),
        ({"transformer_postprocess": "dar", "transformer_postprocess_top": "n"}, "norms"),
        ({"transformer_heads": "5"}, "num_heads"),
    ],
)
def test_settings_of_another_network_are_refused_by_name(tmp_path: Path, changes: dict[str, str], word: str) -> None:
    folder = rewrite_npz(copy_folder("tied_all", tmp_path / "m"), lambda members: change_settings(members, **changes))
    error = refuse(lambda: read_import(folder))
    assert error.code == "imported_model_incompatible"
    assert word in str(error)


def test_pre_norm_of_an_old_version_is_refused(tmp_path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        change_settings(members, version="v1.10.27 1234")

    error = refuse(lambda: read_import(rewrite_npz(copy_folder("pre_norm", tmp_path / "m"), change)))
    assert "v1.10.27" in str(error)


def damage(name: str, content: bytes) -> Callable[[dict[str, bytes]], object]:
    return lambda members: members.update({name: content})


WEIGHT = "encoder_l1_ffn_W1.npy"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda members: members.pop(SETTINGS_MEMBER), "marian_model_settings_missing"),
        (lambda members: members.pop(WEIGHT), "marian_weights_mismatch"),
        (lambda members: members.pop("Wemb.npy"), "marian_weights_mismatch"),
        (damage(WEIGHT, npy(np.zeros((16, 25), np.float32))), "marian_weights_mismatch"),
        (damage(WEIGHT, npy(np.full((16, 24), np.nan, np.float32))), "marian_weights_mismatch"),
        (damage(WEIGHT, npy(np.zeros((16, 24), np.int8))), "marian_weights_mismatch"),
        (damage(WEIGHT, npy(np.zeros((16, 24), np.float64))), "weight_tensor_invalid"),
        (damage(WEIGHT, npy(np.asfortranarray(np.ones((16, 24), np.float32)))), "weight_tensor_invalid"),
        (damage(WEIGHT, npy(np.zeros((16, 24), np.float32))[:-4]), "weight_tensor_invalid"),
        (damage(WEIGHT, b"\x93NUMPY\x01\x00\xff\xff"), "weight_tensor_invalid"),
        (damage(WEIGHT, b"\x80\x04\x95pickle"), "weight_tensor_invalid"),
        (damage("more.npy", npy(np.zeros(3, np.float32))), "marian_weights_mismatch"),
        (damage(SETTINGS_MEMBER, npy(np.zeros(9, np.float32))), "weight_tensor_invalid"),
        (lambda members: change_settings(members, dim_vocabs="[3, 4]"), "marian_vocabulary_sizes_differ"),
        (lambda members: change_settings(members, enc_depth="1000000000"), "json_field_invalid"),
        (lambda members: change_settings(members, enc_depth="100000"), "marian_layers_exceed_weights"),
        (lambda members: change_settings(members, dim_emb="8388608"), "marian_weights_mismatch"),
        (lambda members: change_settings(members, tied_embeddings_all="false"), "marian_weights_mismatch"),
    ],
)
def test_damaged_weights_are_refused(tmp_path: Path, change: Callable[[dict[str, bytes]], object], code: str) -> None:
    folder = rewrite_npz(copy_folder("tied_all", tmp_path / "m"), change)
    assert refuse(lambda: read_import(folder)).code == code


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.array([print], dtype=object), allow_pickle=True)
    folder = rewrite_npz(copy_folder("tied_all", tmp_path / "m"), damage(WEIGHT, content.getvalue()))
    assert refuse(lambda: read_import(folder)).code == "weight_tensor_invalid"


@pytest.mark.parametrize(
    ("decoder", "code"),
    [
        ("models: [a.npz, b.npz]\nvocabs: [a, b]\n", "marian_models_several"),
        ("models: []\nvocabs: [a, b]\n", "marian_models_several"),
        ("models: [model.npz]\nvocabs: [a, b, c]\n", "marian_vocabularies_not_two"),
        ("models: [model.pt]\nvocabs: [a, b]\n", "marian_weight_file_unsupported"),
        ("models: [other.npz]\nvocabs: [a, b]\n", "marian_file_missing"),
        ("models: [model.npz]\nvocabs: [a, b]\n", "marian_file_missing"),
        ("models: [model.npz]\nvocabs: [opus.vocab.yml, opus.vocab.yml]\nbeam-size: 0\n", "decoding_defaults_invalid"),
        ("models: [model.npz]\nvocabs: [opus.vocab.yml, opus.vocab.yml]\nnormalize: x\n", "json_field_invalid"),
    ],
)
def test_a_decoder_file_that_does_not_fit_is_refused(tmp_path: Path, decoder: str, code: str) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    (folder / "decoder.yml").write_text(decoder)
    assert refuse(lambda: read_import(folder)).code == code


def test_only_base_names_of_the_paths_in_decoder_yml_are_used(tmp_path: Path) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    paths = ["/home/someone/opus/model.npz", "../../opus.vocab.yml", "C:\\models\\opus.vocab.yml"]
    (folder / "decoder.yml").write_text(f"models: ['{paths[0]}']\nvocabs:\n  - {paths[1]}\n  - '{paths[2]}'\n")
    assert read_import(folder).generation["beam"] == 12  # Marian's default


def test_folders_with_other_contents_are_refused_by_name(tmp_path: Path) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    (folder / "second.decoder.yml").write_text("models: []\n")
    assert is_marian(folder)
    assert read_import(folder) is not None  # decoder.yml comes first
    (folder / "decoder.yml").rename(folder / "first.decoder.yml")
    assert refuse(lambda: read_import(folder)).code == "marian_decoder_files_several"
    assert read_import(folder / "first.decoder.yml") is not None
    for name in ("first", "second"):
        (folder / f"{name}.decoder.yml").unlink()
    assert refuse(lambda: read_import(folder)).code == "marian_decoder_file_missing"
    folder = copy_folder("tied_all", tmp_path / "bpe")
    (folder / "source.bpe").write_text("#version: 0.2\n")
    error = refuse(lambda: read_import(folder))
    assert error.code == "marian_bpe_unsupported"
    assert "Moses" in str(error)


def test_a_sentencepiece_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    tokens = ["</s>", "<unk>", *(f"w{number}" for number in range(30))]
    (folder / "opus.vocab.yml").write_text("".join(f"{token}: {n}\n" for n, token in enumerate(tokens)))
    assert refuse(lambda: read_import(folder)).code == "sentencepiece_vocabulary_mismatch"


def test_a_vocabulary_with_more_ids_than_rows_is_refused(tmp_path: Path) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    with (folder / "opus.vocab.yml").open("a") as file:
        file.write("one-more: 999\n")
    assert refuse(lambda: read_import(folder)).code == "marian_vocabulary_exceeds_table"


def write_members(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, **options)
    return path


def test_no_path_of_a_zip_file_is_used(tmp_path: Path) -> None:
    files = open_zip(write_members(tmp_path / "m.zip", {"../../a.yml": b"a", "/etc/b.yml": b"b", "C:\\x\\c.yml": b"c"}))
    assert files.names == ["a.yml", "b.yml", "c.yml"]
    assert files.read("b.yml", 10) == b"b"


def test_hostile_zip_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.zip"
    twice = write_members(path, {"a/x.yml": b"1", "b/x.yml": b"2"})
    assert refuse(lambda: open_zip(twice)).code == "zip_member_twice"
    bomb = open_zip(write_members(path, {"x.yml": bytes(30 * 1024**2)}))
    assert refuse(lambda: bomb.read("x.yml", 1024**3)).code == "zip_member_refused"
    assert refuse(lambda: bomb.read("x.yml", 1024)).code == "zip_member_refused"
    large = open_zip(write_members(path, {"x.yml": bytes(2000)}))
    assert refuse(lambda: large.read("x.yml", 1999)).code == "model_file_too_large"
    path.write_bytes(path.read_bytes()[:-30])
    assert refuse(lambda: open_zip(path)).code == "zip_file_invalid"
    monkeypatch.setattr(archive, "_MAX_DIRECTORY_BYTES", 60)
    many = write_members(path, {f"{number}": b"" for number in range(3)})
    assert refuse(lambda: open_zip(many)).code == "zip_directory_too_large"


def test_a_member_that_lies_about_its_size_or_needs_a_password_is_refused(tmp_path: Path) -> None:
    path = write_members(tmp_path / "m.zip", {"x.yml": b"y" * 5000})
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    struct.pack_into("<I", content, directory + 24, 100)  # the size of the content
    path.write_bytes(content)
    assert refuse(lambda: open_zip(path).read("x.yml", 10_000)).code == "model_file_unreadable"
    struct.pack_into("<H", content, directory + 8, 1)  # encrypted
    path.write_bytes(content)
    assert refuse(lambda: open_zip(path).read("x.yml", 10_000)).code == "zip_member_refused"


def test_weights_that_expand_too_much_are_refused(tmp_path: Path) -> None:
    folder = copy_folder("tied_all", tmp_path / "m")
    members = {"Wemb.npy": npy(np.zeros((100_000, 16), np.float32)), SETTINGS_MEMBER: b""}
    write_members(folder / "model.npz", members)
    assert refuse(lambda: read_import(folder)).code == "npz_expands"


def test_a_zip_file_inside_a_zip_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    inner = write_zip("tied_all", tmp_path / "inner.zip")
    outer = write_members(tmp_path / "outer.zip", {"inner.zip": inner.read_bytes()})
    assert refuse(lambda: read_import(outer)).code == "marian_decoder_file_missing"


@pytest.mark.parametrize("name", NAMES)
def test_the_described_parameters_are_those_of_the_network(name: str) -> None:
    network = load_marian(name).network
    tables = ("source.tokens.", "target.tokens.", "output.")
    found = {key: tuple(each.shape) for key, each in network.named_parameters() if not key.startswith(tables)}
    assert dict(block_parameters(network.config)) == found


def test_the_fixtures_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 700_000
