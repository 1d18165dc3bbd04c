"""Compares attendo, CTranslate2 and transformers with the word scores that Marian itself gave.

    python benchmarks/marian_exactness.py          # needs ctranslate2 and transformers

The models and scores are those of `tests/parity/marian_models`. CTranslate2's converter cannot read an npz of Marian
1.12.40 or newer, so it gets the same weights as `write_marian` writes them. The class MarianMTModel of transformers gets
them from `HFModelClass.build`, with its own positions and its own epsilon.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

TESTS = Path(__file__).parents[1] / "tests" / "parity"
sys.path.insert(0, str(TESTS))

from marian_folders import FOLDER, load_marian  # noqa: E402

from attendo.interop.compared_systems import TorchSystem  # noqa: E402
from attendo.interop.huggingface.model_classes import MARIAN  # noqa: E402
from attendo.interop.marian.imported import ImportedMarian  # noqa: E402
from attendo.interop.marian.write_model import write_marian  # noqa: E402
from attendo.model.transformer import Transformer  # noqa: E402
from attendo.text import BOS, EOS, PAD  # noqa: E402

NAMES = ("tied_all", "separate")  # those that both other systems can hold
Score = Callable[[list[int], list[int]], Tensor]


def score_with_attendo(imported: ImportedMarian) -> Score:
    system = TorchSystem(imported.network, "marian")
    return lambda source, target: system.score_tokens([source], [target])[0]


def score_with_transformers(imported: ImportedMarian) -> Score:
    """The network with the sines and the epsilon of MarianMTModel."""
    config = imported.network.config.replace(position_layout="halves", norm_epsilon=1e-5)
    network = Transformer(config)
    network.load_state_dict(imported.network.state_dict())
    model = MARIAN.build(network.eval())

    @torch.no_grad()
    def score(source: list[int], target: list[int]) -> Tensor:
        ids, inputs = torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])
        logits = model(input_ids=ids, attention_mask=ids != PAD, decoder_input_ids=inputs).logits[0]
        return logits.log_softmax(-1).gather(1, torch.tensor([[*target, EOS]]).T)[:, 0]

    return score


def score_with_ctranslate2(imported: ImportedMarian) -> Score:
    import ctranslate2
    from ctranslate2.converters import MarianConverter

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_marian(imported.build_text_model(), folder, "float32")
        vocabularies = sorted(map(str, folder.glob("*vocab.yml")))
        MarianConverter(str(folder / "model.npz"), (vocabularies * 2)[:2]).convert(str(folder / "out"))
        translator = ctranslate2.Translator(str(folder / "out"))
    names = [["", "<unk>", "", "", *each.entries] for each in (imported.source_tokenizer, imported.target_tokenizer)]  # type: ignore[attr-defined]

    def score(source: list[int], target: list[int]) -> Tensor:
        pieces = [[names[side][each] for each in ids] for side, ids in enumerate((source, target))]
        (found,) = translator.score_batch([pieces[0]], [pieces[1]], max_input_length=0)
        return torch.tensor(found.log_probs)

    return score


def differences(imported: ImportedMarian, name: str, score: Score) -> Iterator[Tensor]:
    for pair in json.loads((FOLDER / name / "answers.json").read_text("utf-8"))["scores"]:
        source, target = (
            tokenizer.encode(pair[side])
            for side, tokenizer in (("source", imported.source_tokenizer), ("target", imported.target_tokenizer))
        )
        yield (score(source, target) - torch.tensor(pair["scores"])).abs()


def main() -> None:
    systems = {
        "attendo": score_with_attendo,
        "CTranslate2": score_with_ctranslate2,
        "transformers": score_with_transformers,
    }
    for name in NAMES:
        imported = load_marian(name)
        for system, make in systems.items():
            found = torch.cat(list(differences(imported, name, make(imported))))
            print(f"{name:10} {system:13} mean {float(found.mean()):.1e}  largest {float(found.max()):.1e}")


if __name__ == "__main__":
    main()
