"""Usage errors of typer in Chinese. typer has English texts only, so they are matched with its templates."""

import re

from attendo.cli.language import current_language
from attendo.errors import LocalizedText

TEMPLATES = (
    "No such command {name}. Did you mean {names}?",
    "No such command {name}.",
    "Missing command.",
    "Missing argument {name}. Choose from:{choices}",
    "Missing argument {name}.",
    "Missing option {name}. Choose from:{choices}",
    "Missing option {name}.",
    "No such option: {name} (Possible options: {names})",
    "No such option: {name}",
    "Option {name} requires an argument.",
    "Option {name} does not take a value.",
    "Got unexpected extra argument(s) ({words})",
    "Invalid value for {name}: {reason}",
    "{command} has no commands: leave out {name}",
)


def translate_usage_error(message: str) -> str:
    """Return the message of a usage error in the current language."""
    if current_language() == "en":
        return message
    for template in TEMPLATES:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(template))
        if found := re.fullmatch(pattern, message, re.DOTALL):
            values = {name: " ".join(value.split()) for name, value in found.groupdict().items()}
            return LocalizedText(template, **values).text("zh")
    return message
