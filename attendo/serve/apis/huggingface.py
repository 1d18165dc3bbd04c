"""Hugging Face's inference API: translation, summarization, generation and chat.

The client sends all requests to its base URL, and chat requests to /v1/chat/completions under it. It sends no
requests, not even to localhost, if HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from attendo.errors import shorten
from attendo.serve.apis.continuations import add_prompt_length, prompt_tokens, strip_prompt
from attendo.serve.apis.openai.requests import ChatRequest
from attendo.serve.apis.openai.responses import ChatResponse
from attendo.serve.apis.openai.routes import complete_chat
from attendo.serve.http.auth import bearer_token, key_dependency, require_key
from attendo.serve.http.bodies import ResponseModel, StrictRoute, read_json_object
from attendo.serve.http.errors import ApiError, api_for_path, json_response
from attendo.serve.http.openapi import JSON, MODEL_ERRORS, error_responses, json_or_events, request_body
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.translation.translator import detect_source_language, translate
from attendo.text.languages import match_language

HFTask = Literal["translation", "summarization"]
OUTPUT_FIELDS = {
    "translation": "translation_text",
    "summarization": "summary_text",
    "conversation": "generated_text",
    "generation": "generated_text",
}
_CHAT_PATH = "/v1/chat/completions"
# Decoding options by their transformers names.
_NUMERIC_OPTIONS: dict[str, tuple[str, type]] = {
    "num_beams": ("beam", int),
    "num_beam_groups": ("beam_groups", int),
    "diversity_penalty": ("diversity_penalty", float),
    "length_penalty": ("length_penalty", float),
    "max_length": ("max_length", int),
    "max_new_tokens": ("max_length", int),
    "min_length": ("min_length", int),
    "min_new_tokens": ("min_length", int),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", int),
    "repetition_penalty": ("repetition_penalty", float),
    "seed": ("seed", int),
    "temperature": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "typical_p": ("typical_p", float),
}
# Parameters without effect, with their accepted values. None accepts any value.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...] | None] = {
    "clean_up_tokenization_spaces": None,
    "truncation": None,  # long texts are rejected, not truncated
    "use_cache": None,
    "early_stopping": None,
    "return_full_text": (False,),
    "details": (False,),
    "decoder_input_details": (False,),
    "watermark": (False,),
    "num_return_sequences": (1,),
    "best_of": (1,),
    "stop": ([],),
}
_MAX_NUMBER = 1e9  # larger numbers overflow


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(tags=["Hugging Face"])

    @router.post("/hf/translation", **route_options("/hf/translation"))
    async def translation(request: Request) -> Response:
        """Translate with the model for src_lang and tgt_lang, by default with the first translation model."""
        inputs = await _parse_request(gateway, request)
        served = _select_by_languages(gateway, inputs) or _select_by_task(gateway, "translation")
        return json_response(await _run_task(gateway, served, inputs, "translation"))

    @router.post("/hf/summarization", **route_options("/hf/summarization"))
    async def summarization(request: Request) -> Response:
        """Summarize with the first summarization model, or with the first model without a task."""
        inputs = await _parse_request(gateway, request)
        return json_response(
            await _run_task(gateway, _select_by_task(gateway, "summarization"), inputs, "summarization")
        )

    @router.post("/hf/models/{name}", **route_options("/hf/models/{name}"))
    async def one_model(name: str, request: Request) -> Response:
        """Run one model on its own task."""
        inputs = await _parse_request(gateway, request)
        return json_response(await _run_task(gateway, gateway.get_model(name), inputs))

    @router.post("/hf", **route_options("/hf"))
    @router.post("/", **route_options("/"))
    async def root(request: Request) -> Response:
        """Run the model for src_lang and tgt_lang, by default the first model."""
        inputs = await _parse_request(gateway, request)
        served = _select_by_languages(gateway, inputs) or gateway.get_model(None)
        return json_response(await _run_task(gateway, served, inputs))

    router.include_router(_chat_routes(gateway))
    return router


def _chat_routes(gateway: ModelGateway) -> APIRouter:
    """Serve OpenAI's chat completions under every base URL of this API."""

    router = APIRouter(route_class=StrictRoute, dependencies=[key_dependency(gateway.settings.keys)])

    @router.post(f"/hf{_CHAT_PATH}", response_model=None, responses=CHAT_RESPONSES)
    async def chat(params: ChatRequest, request: Request) -> Response:
        return await complete_chat(gateway, params, request)

    @router.post(f"/hf/models/{{name}}{_CHAT_PATH}", response_model=None, responses=CHAT_RESPONSES)
    async def chat_with_model(name: str, params: ChatRequest, request: Request) -> Response:
        """Chat with the model in the path. A client with a base URL sends no model name."""
        named = params.model_copy(update={"model": gateway.get_model(name).name})
        return await complete_chat(gateway, named, request)

    return router


@dataclass(frozen=True)
class _TaskInputs:
    texts: Sequence[str]
    source: str | None
    target: str | None
    options: dict[str, Any]
    new_token_options: tuple[str, ...]  # length options that count new tokens only


async def _parse_request(gateway: ModelGateway, request: Request) -> _TaskInputs:
    require_key(gateway.settings.keys, bearer_token(request))
    body = await read_json_object(request)
    if body.get("stream"):
        raise ApiError("hf_stream")
    inputs = body.get("inputs")
    texts: list[Any] = inputs if isinstance(inputs, list) else [inputs]
    if not texts or not all(isinstance(each, str) for each in texts):
        raise ApiError("hf_inputs")
    source, target, decoding = parse_parameters(body)
    new = tuple(name.replace("_new_tokens", "_length") for name in decoding if name.endswith("_new_tokens"))
    return _TaskInputs(texts, source, target, to_generate_options(decoding), new)


def _select_by_languages(gateway: ModelGateway, inputs: _TaskInputs) -> ServedModel | None:
    """Return the model for the languages, or None without a target. A missing source is detected."""
    if inputs.target is None:
        return None
    pairs = gateway.pairs()
    target = match_language(inputs.target, [each for _, each in pairs])
    if target is None:
        raise ApiError("unknown_language", language=inputs.target[:40])
    if inputs.source is None:
        source = detect_source_language(gateway, " ".join(inputs.texts), target).language
    elif (named := match_language(inputs.source, [each for each, _ in pairs])) is not None:
        source = named
    else:
        raise ApiError("unknown_language", language=inputs.source[:40])
    if source == target:
        raise ApiError("no_such_pair", source=source, target=target)
    return gateway.get_model_for_pair(source, target)


def _select_by_task(gateway: ModelGateway, task: HFTask) -> ServedModel:
    """Return the first model for the task, or else the first model without a task."""
    served = gateway.registry.all()
    for wanted in (task, None):
        for each in served:
            if _model_task(each) == wanted:
                return each
    model_list = ", ".join(f"{each.name} ({_model_task(each)})" for each in served)
    raise ApiError("hf_task", task=task, served=model_list)


def _model_task(served: ServedModel) -> str | None:
    """Return the task of a model. A model with two languages and no task translates."""
    about = served.about
    return about.task or ("translation" if about.source_language and about.target_language else None)


async def _run_task(
    gateway: ModelGateway, served: ServedModel, inputs: _TaskInputs, task: HFTask | None = None
) -> list[dict[str, str]]:
    """Return the outputs under the field of the task, or under every field if the model has no task."""
    about = served.about
    _check_languages(served, inputs)
    if _model_task(served) == "translation":
        texts = [each.text for each in await translate(gateway, served, inputs.texts, **inputs.options)]
    elif served.model.continues_text:
        texts = await _continue_texts(gateway, served, inputs)
    else:
        texts = [each.text for each in await gateway.generate(served, inputs.texts, **inputs.options)]
    output_task = task or about.task
    names = [OUTPUT_FIELDS[output_task]] if output_task else [*OUTPUT_FIELDS.values()]
    return [dict.fromkeys(names, text) for text in texts]


async def _continue_texts(gateway: ModelGateway, served: ServedModel, inputs: _TaskInputs) -> list[str]:
    """Return the continuation of each text. Length limits depend on its prompt, so texts are generated one by one."""
    gateway.check_texts(inputs.texts)
    deadline, continuations = gateway.deadline(), []
    for text in inputs.texts:
        own = prompt_tokens(served.model, text)
        options = add_prompt_length(inputs.options, inputs.new_token_options, own, gateway.settings.max_output_tokens)
        (result,) = await gateway.generate(served, [text], deadline=deadline, **options)
        continuations.append(next(strip_prompt(served.model, result)).text)
    return continuations


def _check_languages(served: ServedModel, inputs: _TaskInputs) -> None:
    """Raise `ApiError` if the requested languages are not those of the model."""
    about = served.about
    pairs = ((inputs.source, about.source_language), (inputs.target, about.target_language))
    if any(tag is not None and match_language(tag, [own] if own else []) is None for tag, own in pairs):
        raise ApiError("hf_languages", model=served.name, source=about.source_language, target=about.target_language)


def parse_parameters(body: dict[str, Any]) -> tuple[str | None, str | None, dict[str, Any]]:
    """Return source, target and decoding options, which may be at the top level or in generate_parameters."""
    parameters = dict(_get_object(body, "parameters"))
    decoding = _get_object(parameters, "generate_parameters")
    parameters.pop("generate_parameters", None)
    source, target = (_pop_language(parameters, name) for name in ("src_lang", "tgt_lang"))
    return source, target, {**parameters, **decoding}


def to_generate_options(parameters: dict[str, Any]) -> dict[str, Any]:
    """Convert to options of `TextModel.generate`. Null values are ignored."""
    parameters = {name: value for name, value in parameters.items() if value is not None}
    unused = [
        name
        for name in parameters
        if name not in _NUMERIC_OPTIONS and name not in _WITHOUT_EFFECT and name != "do_sample"
    ]
    unused += [
        name
        for name, values in _WITHOUT_EFFECT.items()
        if values is not None and parameters.get(name, values[0]) not in values
    ]
    if unused:
        # The client parses this message and retries without the named parameters.
        raise ApiError("hf_unused", names=", ".join(repr(name[:40]) for name in unused[:20]))
    options = {
        ours: _get_number(parameters, name, kind)
        for name, (ours, kind) in _NUMERIC_OPTIONS.items()
        if name in parameters
    }
    if options.get("min_length") == 0:  # the default of transformers
        del options["min_length"]
    if "do_sample" in parameters:
        _check_value("do_sample", parameters["do_sample"], isinstance(parameters["do_sample"], bool))
        options["sample"] = parameters["do_sample"]
    return options


def _get_object(values: dict[str, Any], name: str) -> dict[str, Any]:
    value = values.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError("hf_object", name=name)
    return value


def _pop_language(values: dict[str, Any], name: str) -> str | None:
    value = values.pop(name, None)
    _check_value(name, value, value is None or isinstance(value, str))
    return value or None


def _get_number(values: dict[str, Any], name: str, number_type: type) -> Any:
    value = values[name]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER
    _check_value(name, value, fits and (number_type is float or value == int(value)))
    return number_type(value)


def _check_value(name: str, value: Any, valid: bool) -> None:
    if not valid:
        raise ApiError("hf_value", name=name, value=shorten(value, 40))


class HFTaskResponse(ResponseModel):
    """Output of a task in its field, or in all fields if the model has no task."""

    translation_text: str | None = None
    summary_text: str | None = None
    generated_text: str | None = None


_PARAMETERS_SCHEMA = {
    "type": ["object", "null"],
    "description": "src_lang, tgt_lang, and those of decoding as transformers names them",
    "properties": {
        "src_lang": {"type": ["string", "null"]},
        "tgt_lang": {"type": ["string", "null"]},
        "generate_parameters": {"type": ["object", "null"]},
    },
}
_REQUEST_SCHEMA = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "inputs": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
        },
        "parameters": _PARAMETERS_SCHEMA,
    },
}
_REQUEST_BODY = request_body({JSON: _REQUEST_SCHEMA})
_ERROR_CODES = (
    *MODEL_ERRORS,
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


def route_options(path: str) -> dict[str, Any]:
    """Return the OpenAPI options of the route at a path."""
    responses = error_responses(api_for_path(path), *_ERROR_CODES)
    return {"response_model": list[HFTaskResponse], "responses": responses, "openapi_extra": _REQUEST_BODY}


CHAT_RESPONSES = {
    **json_or_events(ChatResponse),
    **error_responses(
        "huggingface",
        *MODEL_ERRORS,
        *("too_many_sentences", "unmet_parameter", "unknown_parameter", "one_stream", "no_user_turn"),
    ),
}
