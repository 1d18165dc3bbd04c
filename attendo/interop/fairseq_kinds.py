"""The classes of transformers whose models came from fairseq: BART, mBART, and M2M100 with NLLB."""

from attendo.interop.from_bart import UNUSED_POSITIONS
from attendo.interop.transformers_kind import Kind

BART = Kind(
    "BartForConditionalGeneration",
    "BartConfig",
    "a BART model",
    norm="post",
    positions="learned",
    offset=UNUSED_POSITIONS,
    embedding_norm=True,
)
MBART = Kind(
    "MBartForConditionalGeneration",
    "MBartConfig",
    "an mBART model",
    norm="pre",
    positions="learned",
    offset=UNUSED_POSITIONS,
    embedding_norm=True,
)
M2M100 = Kind(
    "M2M100ForConditionalGeneration",
    "M2M100Config",
    "an M2M100 model",
    norm="pre",
    layouts=("fairseq",),
    offset=None,
    bias=False,
)
