"""Every error has a code from the catalogue and the values that its texts name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from source_files import NAMES, dotted, parsed

import attendo
from attendo.cli.main import COMMANDS, _Commands
from attendo.decode.kinds import _KIND_SETTINGS
from attendo.errors import AttendoError, DataError, ErrorList, MessagePart, UsageError
from attendo.messages import AREAS, MESSAGES, read_area, translate

# Arguments of an error class that its message may not name.
OWN_ARGUMENTS = {
    "TooLongError": {"number", "total"},
    "NotANumberError": {"number", "total"},
    "JobError": {"exit_code"},
    "ApiError": {"extra"},
}
POSITIONAL = {"NotANumberError": {"precision"}}
# Values that the class adds. The text need not name them.
ADDED_VALUES = {"TooLongError": {"text"}, "NotANumberError": {"text"}}


def placeholders(message: str) -> set[str]:
    """The names of all values, and of those in the format of `option_name`."""
    found: set[str] = set()
    for _, name, spec, _ in Formatter().parse(message):
        if name is not None:
            found |= placeholders(spec or "") if name == "option_name" else {name}
    return found


def error_classes() -> set[str]:
    """The names of `AttendoError` and all its subclasses, of `MessagePart` and of the server's `ApiError`."""
    found = {AttendoError.__name__, MessagePart.__name__, "ApiError"}
    classes = [node for name in NAMES for node in ast.walk(parsed(name)) if isinstance(node, ast.ClassDef)]
    while more := {each.name for each in classes if found & {dotted(base) for base in each.bases}} - found:
        found |= more
    return found


def error_calls() -> Iterator[tuple[str, ast.Call]]:
    classes = error_classes() - {"ModelMismatchError"}
    for name in NAMES:
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in classes:
                yield f"{name}:{node.lineno}", node


def test_every_error_has_a_known_code_and_its_values() -> None:
    wrong: dict[str, str] = {}
    for location, call in error_calls():
        code = call.args[0] if call.args else None
        if isinstance(code, ast.IfExp) or ast.unparse(code) in ("code", "error.code"):  # one of several
            continue
        if not isinstance(code, ast.Constant) or code.value not in MESSAGES:
            wrong[location] = ast.unparse(call)
            continue
        names = {keyword.arg for keyword in call.keywords} - OWN_ARGUMENTS.get(dotted(call.func), set())
        names |= POSITIONAL.get(dotted(call.func), set())
        named = placeholders(MESSAGES[code.value].en) - ADDED_VALUES.get(dotted(call.func), set())
        if None not in names and names != named:
            wrong[location] = f"{names} are given, {named} are named"
    assert wrong == {}


def test_every_code_is_used_and_defined_once() -> None:
    used = {
        node.value
        for name in NAMES
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    by_type = read_area("validation").keys()  # chosen by pydantic's type of an error
    assert MESSAGES.keys() - used - by_type == set()
    assert sum(len(read_area(area)) for area in AREAS) == len(MESSAGES)


def test_both_languages_have_the_same_placeholders() -> None:
    of_server = read_area("serve")
    for code, message in MESSAGES.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]+", code)
        assert placeholders(message.en) == placeholders(message.zh), code
        assert "\n" not in message.en + message.zh
        words = re.sub(r"\{[^}]*\}", "", message.en)
        assert re.search("[\u4e00-\u9fff]", message.zh) or not re.search(r"[a-z]{2} [a-z]{2}", words), code
        assert message.phrases.keys() <= placeholders(message.en), code
        assert (message.status >= 400) == (code in of_server and code != "body_not_an_object"), code


def test_all_features_that_a_kind_lacks_have_a_chinese_name() -> None:
    code = "\n".join(path.read_text("utf-8") for path in Path(attendo.__file__).parent.rglob("*.py"))
    calls = {
        "parallel_feature_unsupported": "require_autoregressive",
        "prefix_lm_feature_unsupported": "require_cross_attention",
        "merged_attention_feature_unsupported": "(?:require_cross_attention|reject_merged_attention)",
    }
    for message, call in calls.items():
        features = set(re.findall(rf'{call}\("(.*?)"\)', code))
        assert features
        assert features <= MESSAGES[message].phrases["feature"].keys()
    owners = {" or ".join(kinds) for kinds in _KIND_SETTINGS.values() if len(kinds) > 1}
    assert owners <= MESSAGES["option_needs_kind"].phrases["owner"].keys()


def test_all_reasons_of_bad_lines_are_translated() -> None:
    nodes = [node for name in NAMES for node in ast.walk(parsed(name)) if isinstance(node, ast.Call)]
    raised = {ast.literal_eval(node.args[0]) for node in nodes if dotted(node.func) == "BadLineError"}
    returned = {"empty", "too long", "length ratio", "not UTF-8", "source not UTF-8", "target not UTF-8"}
    assert len(raised) > 5
    assert {reason for reason in raised | returned if translate(reason) == reason} == set()


def test_nested_errors_are_formatted_in_both_languages() -> None:
    inner = DataError("not_a_shard", path="a")
    outer = UsageError("run_file_invalid", path="run.toml", error=inner)
    assert str(outer) == "run.toml: a is damaged: it is not a shard"
    assert outer.text("zh") == "run.toml：a 已损坏：不是数据分片"
    assert (outer.code, outer.values["error"]) == ("run_file_invalid", inner)


def test_long_error_lists_end_with_a_count() -> None:
    errors = [UsageError("setting_missing", name=f"setting_{number}" * 9) for number in range(9)]
    several = UsageError("settings_invalid", faults=ErrorList(errors))
    assert str(several).endswith("; and 6 more")
    assert several.text("zh").endswith("；另有 6 个错误")


def test_settings_are_called_by_their_options() -> None:
    options = {"n_best": "--n-best", "beam": "--beam", "beam_groups": "--beam-groups", "top_k": "--top-k"}
    error = UsageError("n_best_out_of_range", option="beam", limit=2, n_best=3)
    assert str(error) == "n_best must be from 1 to beam (2), not 3"
    assert error.text("en", options) == "--n-best must be from 1 to --beam (2), not 3"
    assert error.text("zh", options) == "--n-best 为 3，应在 1 到 --beam（2）之间"
    nested = UsageError("settings_invalid", faults=ErrorList([error, UsageError("setting_missing", name="top_k")]))
    assert nested.text("en", options) == f"{error.text('en', options)}; --top-k is missing"
    several = MessagePart("engine_option_alternatives", options="top_k, beam_groups (2), seed", engines="onnx")
    assert several.text("en", options) == "--top-k, --beam-groups (2), seed (leave it out, or use onnx)"


def test_options_of_generate_are_marked_in_texts() -> None:
    """`{option_name:n_best}`, so that the command line can name the option."""
    stored = {"argos_prefix_unsupported", "trace_exceeds_max_length", "sequence_exceeds_max_length"}  # in the model
    warnings = {"output_cut_at_limit", "batch_tokens_reduced"}
    options = [each.name for each in _Commands(COMMANDS)["generate"].params if "_" in each.name]
    bare = re.compile(rf"(?<![\w.:{{])({'|'.join(options)})(?!\w)", re.ASCII)
    found = {code for code, message in MESSAGES.items() if bare.search(message.en) or bare.search(message.zh)}
    assert found - stored - warnings == set()


def test_suggestions_in_values_are_translated() -> None:
    unknown = UsageError("unknown_setting", name="train.step", suggestion=" (did you mean train.steps?)")
    assert unknown.text("zh") == "未知设置 train.step（是否指 train.steps？）"
