"""What else a trained translator can do: score texts, continue a beginning, and give vectors of sentences."""

import torch
from generate import next_logits
from loss import EOS, PAD, shifted
from torch import Tensor
from translator import Translator


@torch.no_grad()
def token_scores(translator: Translator, sentence: str, candidate: str) -> Tensor:
    """[T]: the log-probability of each token of a given target, with that of EOS."""
    whole = torch.cat((translator.target(candidate), torch.tensor([[EOS]])), dim=1)
    read, labels = shifted(whole)
    log_p = translator.network(translator.source(sentence), read)[0].log_softmax(-1)
    return log_p.gather(2, labels[..., None])[0, :, 0]


@torch.no_grad()
def continued(translator: Translator, sentence: str, beginning: str, max_new: int = 10) -> str:
    """The greedy target that starts with a given beginning."""
    source, target = translator.source(sentence), translator.target(beginning)
    memory, _ = translator.network.encoder(source)
    for _ in range(max_new):
        token = next_logits(translator.network, target, source, memory).argmax(-1)
        if token == EOS:
            break
        target = torch.cat((target, token[:, None]), dim=1)
    return translator.words(target[0, 1:].tolist())


def sentence_vector(memory: Tensor, ids: Tensor) -> Tensor:
    """[B, S, d_model] and ids [B, S] give [B, d_model]: the mean over the tokens that are not padding."""
    counted = (ids != PAD)[..., None]
    return (memory * counted).sum(1) / counted.sum(1)
