"""What Hugging Face's API is asked and answers with, as its description tells it."""

from typing import Any

from attendo.serve.error_shapes import shape_of
from attendo.serve.fields import Told
from attendo.serve.openai.replies import ChatReply
from attendo.serve.openapi import OF_MODELS, events_or, refusals


class Reply(Told):
    """By the task one of these; all of them where nobody has said what a model is for."""

    translation_text: str | None = None
    summary_text: str | None = None
    generated_text: str | None = None


_PARAMETERS = {
    "type": ["object", "null"],
    "description": "src_lang, tgt_lang, and those of decoding as transformers names them",
    "properties": {
        "src_lang": {"type": ["string", "null"]},
        "tgt_lang": {"type": ["string", "null"]},
        "generate_parameters": {"type": ["object", "null"]},
    },
}
_SCHEMA = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "inputs": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
        },
        "parameters": _PARAMETERS,
    },
}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}
_REFUSED = (
    *OF_MODELS,
    "too_many_texts",
    "too_many_sentences",
    "unknown_language",
    "no_such_pair",
    "no_language",
    "hf_task",
    "hf_inputs",
    "hf_object",
    "hf_value",
    "hf_unused",
    "hf_languages",
    "hf_stream",
)


def described(path: str) -> dict[str, Any]:
    """What a route at this path says of itself."""
    responses = refusals(shape_of(path), *_REFUSED)
    return {"response_model": list[Reply], "responses": responses, "openapi_extra": _BODY}


CHAT_RESPONSES = {
    **events_or(ChatReply),
    **refusals(
        "huggingface",
        *OF_MODELS,
        *("too_many_sentences", "unmet_parameter", "unknown_parameter", "one_stream", "no_user_turn"),
    ),
}
