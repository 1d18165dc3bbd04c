"""Hugging Face's inference API: translation, summarization, generation and chat.

The client sends everything to the one address that it is given, and chat to /v1/chat/completions behind it. It asks
nobody at all, not even this machine, where HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from attendo.serve.apis import openai
from attendo.serve.apis.continuations import added, grown, own_tokens
from attendo.serve.apis.openai.requests import ChatRequest
from attendo.serve.apis.openai.responses import ChatReply
from attendo.serve.http.auth import admitted, bearer
from attendo.serve.http.bodies import StrictRoute, Told, json_object
from attendo.serve.http.errors import Refusal, answer, shape_of
from attendo.serve.http.openapi import OF_MODELS, events_or, refusals
from attendo.serve.languages import closest
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.serve.translation.translator import found_source, translated

Task = Literal["translation", "summarization"]
Chat = Callable[[ChatRequest, Request], Awaitable[Response]]
NAMES = {
    "translation": ("translation_text",),
    "summarization": ("summary_text",),
    "conversation": ("generated_text",),
    "generation": ("generated_text",),
}
_CHAT = "/v1/chat/completions"
_ALL_NAMES = ("translation_text", "summary_text", "generated_text")
# The settings of a search, by the names that transformers has for them.
_NUMBERS: dict[str, tuple[str, type]] = {
    "num_beams": ("beam", int),
    "num_beam_groups": ("groups", int),
    "diversity_penalty": ("diversity", float),
    "length_penalty": ("length_penalty", float),
    "max_length": ("max_length", int),
    "max_new_tokens": ("max_length", int),
    "min_length": ("min_length", int),
    "min_new_tokens": ("min_length", int),
    "no_repeat_ngram_size": ("no_repeat_ngram", int),
    "repetition_penalty": ("repetition_penalty", float),
    "seed": ("seed", int),
    "temperature": ("temperature", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "typical_p": ("typical", float),
}
# What changes nothing, or nothing with these values; None: with any.
_HARMLESS: dict[str, tuple[Any, ...] | None] = {
    "clean_up_tokenization_spaces": None,
    "truncation": None,  # what is too long is refused, not cut
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
_MOST = 1e9  # beyond it numbers only overflow


def routes(office: Office) -> APIRouter:
    router = APIRouter(tags=["Hugging Face"])

    @router.post("/hf/translation", **described("/hf/translation"))
    async def translation(request: Request) -> Response:
        """By the model for src_lang and tgt_lang; without them by the first that translates."""
        asked = await _asked(office, request)
        served = _for_languages(office, asked) or _for_task(office, "translation")
        return answer(await _answers(office, served, asked, "translation"))

    @router.post("/hf/summarization", **described("/hf/summarization"))
    async def summarization(request: Request) -> Response:
        """By the first model that says it summarizes, or else by the first that says nothing of what it is for."""
        asked = await _asked(office, request)
        return answer(await _answers(office, _for_task(office, "summarization"), asked, "summarization"))

    @router.post("/hf/models/{name}", **described("/hf/models/{name}"))
    async def one_model(name: str, request: Request) -> Response:
        """By one model, which does what it is for."""
        asked = await _asked(office, request)
        return answer(await _answers(office, office.served(name), asked))

    @router.post("/hf", **described("/hf"))
    @router.post("/", **described("/"))
    async def root(request: Request) -> Response:
        """By the model for src_lang and tgt_lang; without them by the first."""
        asked = await _asked(office, request)
        served = _for_languages(office, asked) or office.served(None)
        return answer(await _answers(office, served, asked))

    router.include_router(_chat_routes(office))
    return router


def _chat_routes(office: Office) -> APIRouter:
    """What OpenAI's API answers, behind every address that a client may have been given."""

    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(route_class=StrictRoute, dependencies=[Depends(with_key)])
    answered: Chat = next(
        each.endpoint for each in openai.routes(office).routes if isinstance(each, APIRoute) and each.path == _CHAT
    )

    @router.post(f"/hf{_CHAT}", response_model=None, responses=CHAT_RESPONSES)
    async def chat(asked: ChatRequest, request: Request) -> Response:
        return await answered(asked, request)

    @router.post(f"/hf/models/{{name}}{_CHAT}", response_model=None, responses=CHAT_RESPONSES)
    async def chat_with_model(name: str, asked: ChatRequest, request: Request) -> Response:
        """The client names no model where it has an address."""
        return await answered(asked.model_copy(update={"model": office.served(name).name}), request)

    return router


@dataclass(frozen=True)
class _Asked:
    texts: Sequence[str]
    source: str | None
    target: str | None
    options: dict[str, Any]
    new: tuple[str, ...]  # those of the options that count only what is new


async def _asked(office: Office, request: Request) -> _Asked:
    admitted(office, bearer(request))
    body = await json_object(request)
    if body.get("stream"):
        raise Refusal("hf_stream")
    inputs = body.get("inputs")
    texts: list[Any] = inputs if isinstance(inputs, list) else [inputs]
    if not texts or not all(isinstance(each, str) for each in texts):
        raise Refusal("hf_inputs")
    parameters = parameters_of(body)
    new = tuple(name.replace("_new_tokens", "_length") for name in parameters.decoding if name.endswith("_new_tokens"))
    return _Asked(texts, parameters.source, parameters.target, options_of(parameters.decoding), new)


def _for_languages(office: Office, asked: _Asked) -> Served | None:
    """None where no target is named. Without a source the text tells it."""
    if asked.target is None:
        return None
    pairs = office.pairs()
    target = closest(asked.target, [each for _, each in pairs])
    if target is None:
        raise Refusal("unknown_language", language=asked.target[:40])
    if asked.source is None:
        source = found_source(office, " ".join(asked.texts), target).language
    elif (named := closest(asked.source, [each for each, _ in pairs])) is not None:
        source = named
    else:
        raise Refusal("unknown_language", language=asked.source[:40])
    if source == target:
        raise Refusal("no_such_pair", source=source, target=target)
    return office.for_pair(source, target)


def _for_task(office: Office, task: Task) -> Served:
    """The first that says so; or else the first of which nobody has said what it is for."""
    served = office.shelf.all()
    for wanted in (task, None):
        for each in served:
            if _task(each) == wanted:
                return each
    told = ", ".join(f"{each.name} ({_task(each)})" for each in served)
    raise Refusal("hf_task", task=task, served=told)


def _task(served: Served) -> str | None:
    """With two languages it is translation, said or not."""
    about = served.about
    return about.task or ("translation" if about.source_language and about.target_language else None)


async def _answers(office: Office, served: Served, asked: _Asked, task: Task | None = None) -> list[dict[str, str]]:
    """Under the name that the task has for them; where nobody has said what a model is for, under each."""
    about = served.about
    _check_languages(served, asked)
    if _task(served) == "translation":
        texts = [each.text for each in await translated(office, served, asked.texts, **asked.options)]
    elif served.model.decoder_only:
        texts = await _continued(office, served, asked)
    else:
        texts = [each.text for each in await office.answer(served, asked.texts, **asked.options)]
    told = task or about.task
    names = NAMES[told] if told else _ALL_NAMES
    return [dict.fromkeys(names, text) for text in texts]


async def _continued(office: Office, served: Served, asked: _Asked) -> list[str]:
    """What is new of each text; how long it may be depends on its own length."""
    office.check(asked.texts)
    deadline, told = office.deadline(), []
    for text in asked.texts:
        own = own_tokens(served.model, text)
        options = grown(asked.options, asked.new, own, office.settings.answer_tokens)
        (result,) = await office.answer(served, [text], deadline=deadline, **options)
        told.append(next(added(served.model, result)).text)
    return told


def _check_languages(served: Served, asked: _Asked) -> None:
    """A model of one pair cannot do another."""
    about = served.about
    pairs = ((asked.source, about.source_language), (asked.target, about.target_language))
    if any(tag is not None and closest(tag, [own] if own else []) is None for tag, own in pairs):
        raise Refusal("hf_languages", model=served.name, source=about.source_language, target=about.target_language)


@dataclass(frozen=True)
class Parameters:
    source: str | None
    target: str | None
    decoding: dict[str, Any]


def parameters_of(body: dict[str, Any]) -> Parameters:
    """Those for decoding may stand among the others, or apart in generate_parameters."""
    given = dict(_object(body, "parameters"))
    decoding = _object(given, "generate_parameters")
    given.pop("generate_parameters", None)
    source, target = (_language(given, name) for name in ("src_lang", "tgt_lang"))
    return Parameters(source, target, {**given, **decoding})


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """As `TextModel.generate` takes them; null is as if left out."""
    given = {name: value for name, value in given.items() if value is not None}
    unused = [name for name in given if name not in _NUMBERS and name not in _HARMLESS and name != "do_sample"]
    unused += [
        name for name, values in _HARMLESS.items() if values is not None and given.get(name, values[0]) not in values
    ]
    if unused:
        # The client reads these words, and asks again without what is named.
        raise Refusal("hf_unused", names=", ".join(repr(name[:40]) for name in unused[:20]))
    options = {ours: _number(given, name, kind) for name, (ours, kind) in _NUMBERS.items() if name in given}
    if options.get("min_length") == 0:  # the default of transformers
        del options["min_length"]
    if "do_sample" in given:
        options["sample"] = _truth(given, "do_sample")
    return options


def _object(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refusal("hf_object", name=name)
    return found


def _language(values: dict[str, Any], name: str) -> str | None:
    found = values.pop(name, None)
    if found is not None and not isinstance(found, str):
        raise Refusal("hf_value", name=name, value=_shown(found))
    return found or None


def _number(values: dict[str, Any], name: str, kind: type) -> Any:
    value = values[name]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    if not fits or (kind is int and value != int(value)):
        raise Refusal("hf_value", name=name, value=_shown(value))
    return kind(value)


def _truth(values: dict[str, Any], name: str) -> bool:
    value = values[name]
    if not isinstance(value, bool):
        raise Refusal("hf_value", name=name, value=_shown(value))
    return value


def _shown(value: Any) -> str:
    return repr(value)[:40]


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
