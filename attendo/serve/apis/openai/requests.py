"""Request schemas of OpenAI's API. Unsupported parameters are rejected if they would change the output."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from attendo.serve.http.bodies import ModelName, PositiveInt
from attendo.serve.http.errors import ApiError, suggest

StopSequence = Annotated[str, Field(min_length=1, max_length=500)]
_MAX_SHOWN_CHARACTERS = 100  # of a name in an error

# Unsupported parameters, each with the values that request nothing.
UNSUPPORTED: dict[str, Sequence[Any]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": ([], ["text"]),
    "audio": (),
    "web_search_options": (),
    "moderation": (),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "logit_bias": ({},),
    "suffix": ("",),
    "best_of": (1,),
}
# Ignored parameters (user, storage, caching, reasoning): they do not change the output.
WITHOUT_EFFECT = (
    *("user", "safety_identifier", "metadata", "store", "service_tier", "parallel_tool_calls", "tool_prompt"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("prediction", "reasoning_effort", "verbosity"),
)


class _OpenAIObject(BaseModel):
    """Base of request objects: strict types, unknown fields allowed."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class StreamOptions(_OpenAIObject):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted, without effect


class CommonParams(_OpenAIObject):
    """Parameters of chat and text completions. Null equals an omitted parameter."""

    model_config = ConfigDict(allow_inf_nan=False)

    model: ModelName | None = None
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    n: PositiveInt | None = None
    stop: StopSequence | Annotated[list[StopSequence], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def named_token_limit(self) -> tuple[str, int | None]:
        """Return the token limit and the name of its parameter."""
        return "max_tokens", self.max_tokens

    @property
    def stop_sequences(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def echoes(self) -> bool:
        """Return whether the prompt is returned before the output."""
        return False

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check_supported(self) -> None:
        """Raise `ApiError` for unknown and unsupported parameters."""
        extra_fields = {name: value for name, value in (self.model_extra or {}).items() if value is not None}
        for name, value in extra_fields.items():
            if name not in UNSUPPORTED and name not in WITHOUT_EFFECT:
                raise self._unknown_parameter(name[:_MAX_SHOWN_CHARACTERS])
            if name in UNSUPPORTED and not _is_one_of(value, UNSUPPORTED[name]):
                raise ApiError("unmet_parameter", {"param": name}, name=name)
        if self.stream and (self.n or 1) > 1:
            raise ApiError("one_stream", {"param": "n"}, count=self.n)

    def _unknown_parameter(self, name: str) -> ApiError:
        return ApiError(
            "unknown_parameter", {"param": name}, name=name, suggestion=suggest(name, [*type(self).model_fields])
        )


class TextPart(_OpenAIObject):
    type: Literal["text"]
    text: str


MessageContent = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextPart], Tag("parts")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "parts"),
]


class ChatMessage(_OpenAIObject):
    """A message of a conversation. Its parts are joined by line breaks, because the API does not define how."""

    role: Literal["system", "developer", "user", "assistant"]
    content: MessageContent | None = None

    @property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part.text for part in self.content)


class ChatRequest(CommonParams):
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1_000)]
    max_completion_tokens: PositiveInt | None = None

    @property
    def named_token_limit(self) -> tuple[str, int | None]:
        if self.max_completion_tokens is None:
            return super().named_token_limit
        return "max_completion_tokens", self.max_completion_tokens


class CompletionRequest(CommonParams):
    prompt: str | Annotated[list[str], Field(min_length=1)]
    echo: bool | None = None

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def echoes(self) -> bool:
        return bool(self.echo)


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    """Compare types too: 0 == False in Python, but logprobs=0 is a request for log-probabilities."""
    return any(type(value) is type(each) and value == each for each in values)
