"""Messages of files and folders."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "input_line": Message("line {line}", "第 {line} 行"),
    "text_position": Message("text {position} of {total}", "第 {position} 段文本（共 {total} 段）"),
    "line_of_file": Message("{path} line {line}", "{path} 第 {line} 行"),
    "disk_space_too_small": Message(
        "{folder} has {free:,} bytes free, but {needed:,} are needed: free some disk space",
        "{folder} 剩余 {free:,} 字节，需要 {needed:,} 字节：请腾出磁盘空间",
    ),
    "parent_is_a_file": Message(
        "{path} cannot be written: {file} is a file, not a folder; choose another path",
        "无法写入 {path}：{file} 是文件，不是文件夹；请换一个路径",
    ),
    "disk_full": Message(
        "{path} cannot be written: the disk is full; free about {size:,} bytes",
        "无法写入 {path}：磁盘已满；请腾出约 {size:,} 字节",
    ),
    "disk_full_size_unknown": Message(
        "{path} cannot be written: the disk is full; free disk space", "无法写入 {path}：磁盘已满；请腾出磁盘空间"
    ),
    "folder_in_use": Message(
        "another process is using {folder}: wait for it, or stop it first",
        "另一个进程正在使用 {folder}：请等它结束，或先停止它",
    ),
    "package_missing": Message(
        "{purpose} needs {package}: pip install 'attendo[{extra}]'",
        "{purpose} 需要 {package}：pip install 'attendo[{extra}]'",
        {
            "purpose": {
                "an ONNX model": "ONNX 模型",
                "a CTranslate2 model": "CTranslate2 模型",
                "the check of an import (skipped with --no-proof)": "导入的校验（可用 --no-proof 跳过）",
                "TensorBoard logging": "写入 TensorBoard 记录",
            }
        },
    ),
    "json_not_an_object": Message(
        "{path} is damaged: it is not a JSON object; {fix}",
        "{path} 已损坏：不是 JSON 对象；{fix}",
        {"fix": {"restore it from a copy": "请从备份恢复", "copy the folder again": "请重新复制文件夹"}},
    ),
    "not_a_regular_file": Message(
        "{path} cannot be read: it is not a regular file; {fix}",
        "无法读取 {path}：不是普通文件；{fix}",
        {
            "fix": {
                "restore it from a copy": "请从备份恢复",
                "copy the folder again": "请重新复制文件夹",
                "a model folder needs its tokenizer files": "模型文件夹需要它的分词器文件",
            }
        },
    ),
    "model_file_too_large": Message(
        "{path} is too large: it has {size:,} bytes, and the limit is {limit:,}; {fix}",
        "{path} 太大：有 {size:,} 字节，上限为 {limit:,} 字节；{fix}",
        {
            "fix": {
                "restore it from a copy": "请从备份恢复",
                "copy the folder again": "请重新复制文件夹",
                "a model folder needs its tokenizer files": "模型文件夹需要它的分词器文件",
            }
        },
    ),
    "model_file_unreadable": Message(
        "{path} cannot be read: {reason}; {fix}",
        "无法读取 {path}：{reason}；{fix}",
        {
            "fix": {
                "restore it from a copy": "请从备份恢复",
                "copy the folder again": "请重新复制文件夹",
                "a model folder needs its tokenizer files": "模型文件夹需要它的分词器文件",
            }
        },
    ),
    "model_file_not_utf8": Message(
        "{path} is damaged: it is not UTF-8; {fix}",
        "{path} 已损坏：不是 UTF-8；{fix}",
        {"fix": {"restore it from a copy": "请从备份恢复", "copy the folder again": "请重新复制文件夹"}},
    ),
    "json_syntax_invalid": Message(
        "{path} is damaged: it is not JSON ({reason}); {fix}",
        "{path} 已损坏：不是有效的 JSON（{reason}）；{fix}",
        {"fix": {"restore it from a copy": "请从备份恢复", "copy the folder again": "请重新复制文件夹"}},
    ),
    "not_a_model_folder": Message(
        "{folder} exists and is not a model folder: choose another path, or empty the folder first",
        "{folder} 已经存在，而且不是模型文件夹：请换一个路径，或先清空它",
    ),
    "run_instead_of_model": Message(
        "{folder} is a run folder, not a model folder: use {model_folder}",
        "{folder} 是训练文件夹，不是模型文件夹：请用 {model_folder}",
    ),
    "model_folder_not_found": Message(
        "{folder} is not a folder: give a folder that contains manifest.json, such as runs/demo/model",
        "{folder} 不是文件夹：请给出含有 manifest.json 的文件夹，例如 runs/demo/model",
    ),
    "model_manifest_missing": Message(
        "{folder} is not a model folder: {reason}; give a folder written by attendo, such as runs/demo/model",
        "{folder} 不是模型文件夹：{reason}；请给出 attendo 写出的文件夹，例如 runs/demo/model",
        {"reason": {"it has no manifest.json": "没有 manifest.json", "it is empty": "文件夹是空的"}},
    ),
    "manifest_checksum_mismatch": Message(
        "{path} is damaged: its checksum does not match; restore the folder from a copy",
        "{path} 已损坏：校验和不符；请从备份恢复文件夹",
    ),
    "manifest_version_mismatch": Message(
        "{path}: this attendo reads {kind} version {version}, not {found}",
        "{path}：本版 attendo 读取 {kind} 版本 {version}，不能读取版本 {found}",
    ),
    "manifest_lists_no_files": Message(
        "{path} is damaged: it lists no files; restore the folder from a copy",
        "{path} 已损坏：没有列出文件；请从备份恢复文件夹",
    ),
    "folder_file_missing": Message("{path} is missing: restore it from a copy", "缺少 {path}：请从备份恢复"),
    "file_size_mismatch": Message(
        "{path} has {size} bytes instead of {expected}: restore it from a copy",
        "{path} 有 {size} 字节，应为 {expected} 字节：请从备份恢复",
    ),
    "file_checksum_mismatch": Message(
        "{path} is damaged: its checksum does not match the manifest; restore it from a copy",
        "{path} 已损坏：校验和与 manifest.json 不符；请从备份恢复",
    ),
    "weights_too_few": Message(
        "{path} does not match config.json: it has {count:,} numbers in {tensors:,} tensors, but the network needs at least {needed:,}",
        "{path} 与 config.json 不符：共有 {count:,} 个数、{tensors:,} 个张量，网络至少需要 {needed:,} 个数",
    ),
    "weights_do_not_fit": Message(
        "{path} does not match config.json: {faults} ({count} mismatches in total)",
        "{path} 与 config.json 不符：{faults}（共 {count} 处）",
    ),
    "sample_file_damaged": Message(
        "{path} is damaged: its lines are not pairs of source and target; restore it from a copy",
        "{path} 已损坏：内容不是源文与译文对；请从备份恢复",
    ),
    "weights_write_failed": Message("{path} cannot be written: {reason}", "无法写入 {path}：{reason}"),
    "model_config_invalid": Message("{path}: {error}", "{path}：{error}"),
    "tokenizer_size_mismatch": Message(
        "{folder}: the {side} tokenizer has {count} tokens, but config.json has {expected}: they belong to different models",
        "{folder}：{side}分词器有 {count} 个词元，而 config.json 中为 {expected} 个：两者属于不同的模型",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "file_not_in_manifest": Message(
        "{path} is not listed in manifest.json: restore the folder from a copy",
        "manifest.json 没有列出 {path}：请从备份恢复文件夹",
    ),
    "model_about_invalid": Message("{path}: {error}", "{path}：{error}"),
    "manifest_path_outside_folder": Message(
        "{path}: the file name {name} points outside the folder; restore the folder from a copy",
        "{path}：文件名 {name} 指向文件夹之外；请从备份恢复文件夹",
    ),
    "safetensors_header_too_large": Message(
        "{path} is not a readable safetensors file: its header has {size:,} bytes, and the limit is {limit:,}; restore it from a copy",
        "{path} 不是可读的 safetensors 文件：文件头要占 {size:,} 字节，上限为 {limit:,} 字节；请从备份恢复",
    ),
    "safetensors_unreadable": Message(
        "{path} is not a readable safetensors file: {reason}", "{path} 不是可读的 safetensors 文件：{reason}"
    ),
    "settings_invalid": Message("{faults}", "{faults}"),
    "path_being_written": Message(
        "another process is writing {path}: wait for it, or stop it first",
        "另一个进程正在写入 {path}：请等它结束，或先停止它",
    ),
    "unknown_setting": Message("unknown setting {name}{suggestion}", "未知设置 {name}{suggestion}"),
    "setting_missing": Message("{name} is missing", "缺少 {name}"),
    "setting_not_a_list": Message(
        "{name} must be a list: write {meant}, not {given}", "{name} 必须是列表：请写成 {meant}，而不是 {given}"
    ),
    "setting_invalid": Message("{name}: {reason}, not {given}", "{name}：{reason}，而不是 {given}"),
    "more_faults": Message("and {count} more", "另有 {count} 个错误"),
}
