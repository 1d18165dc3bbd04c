"""Messages of tokenizers and markup."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "tokenizer_file_unreadable": Message(
        "tokenizer.file {path} cannot be read: {reason}", "无法读取 tokenizer.file {path}：{reason}"
    ),
    "tokenizer_file_invalid": Message("tokenizer.file: {path}: {error}", "tokenizer.file：{path}：{error}"),
    "merge_not_a_pair": Message(
        "{path} is damaged: {line} is not a pair of pieces", "{path} 已损坏：{line} 不是一对词元"
    ),
    "joint_vocabulary_kinds_differ": Message(
        "tokenizer.joint is one vocabulary for both sides, but kind {kind} and target_kind {target_kind} differ: set joint to false, or leave target_kind out",
        "tokenizer.joint 表示两边共用一个词表，而 kind {kind} 与 target_kind {target_kind} 不同：请把 joint 设为 false，或去掉 target_kind",
    ),
    "dropout_without_merges": Message(
        "tokenizer.dropout skips merges, which kind {kind} does not have: use kind bpe",
        "tokenizer.dropout 会跳过一些合并，而 kind {kind} 没有合并：请用 kind bpe",
    ),
    "byte_vocabulary_size_fixed": Message(
        "tokenizer.size {size} has no effect with kind bytes, which always has 256 byte tokens: leave it out",
        "kind 为 bytes 时固定有 256 个字节，tokenizer.size {size} 不起作用：请去掉",
    ),
    "joint_vocabulary_two_files": Message(
        "tokenizer.joint is one vocabulary for both sides: leave tokenizer.target_file out",
        "tokenizer.joint 表示两边共用一个词表：请去掉 tokenizer.target_file",
    ),
    "target_file_without_file": Message(
        "tokenizer.target_file is for the target only: set tokenizer.file too",
        "tokenizer.target_file 只用于译文一边：请同时设置 tokenizer.file",
    ),
    "tokenizer_file_setting_conflict": Message(
        "tokenizer.file is a finished tokenizer: leave tokenizer.{option} out",
        "tokenizer.file 已经是完整的分词器：请去掉 tokenizer.{option}",
    ),
    "tokenizer_format_unknown": Message(
        '{path} is not a tokenizer: "format" must be "{expected}"', '{path} 不是分词器："format" 必须是 "{expected}"'
    ),
    "tokenizer_version_unsupported": Message(
        "{path} has version {found}: this attendo reads version {expected}",
        "{path} 的版本为 {found}：本版 attendo 只读取版本 {expected}",
    ),
    "tokenizer_key_unknown": Message(
        "{path} has the unknown key {key}: remove the key, or copy the model folder again",
        "{path} 含有未知的键 {key}：请删除它，或重新复制模型文件夹",
    ),
    "tokenizer_symbols_not_strings": Message(
        '{path} is damaged: "symbols" must be a list of strings', '{path} 已损坏："symbols" 必须是字符串列表'
    ),
    "tokenizer_pieces_not_strings": Message(
        '{path} is damaged: "pieces" must be a list of strings', '{path} 已损坏："pieces" 必须是字符串列表'
    ),
    "tokenizer_control_pieces_missing": Message(
        "{path} is damaged: its pieces must begin with {pieces}", '{path} 已损坏："pieces" 必须以 {pieces} 开头'
    ),
    "tokenizer_symbols_misplaced": Message(
        "{path} is damaged: its symbols must come directly after {piece}",
        "{path} 已损坏：符号必须紧跟在 {piece} 之后，排在其他词元之前",
    ),
    "tokenizer_json_invalid": Message(
        "{path} is not a tokenizer: {reason}; copy the model folder again",
        "{path} 不是分词器：{reason}；请重新复制模型文件夹",
    ),
    "tokenizer_symbols_damaged": Message("{path} is damaged: {error}", "{path} 已损坏：{error}"),
    "tokenizer_piece_duplicate": Message(
        "{path} is damaged: the piece {piece} occurs twice", "{path} 已损坏：词元 {piece} 出现了两次"
    ),
    "tokenizer_piece_invalid": Message(
        "{path} is damaged: {piece} cannot be a piece of a {kind} tokenizer",
        "{path} 已损坏：{piece} 不能是 {kind} 分词器的词元",
    ),
    "tokenizer_piece_missing": Message(
        "{path} is damaged: the piece {piece!r} is missing", "{path} 已损坏：缺少词元 {piece!r}"
    ),
    "sentencepiece_duplicate_piece": Message(
        "this SentencePiece model contains a piece twice", "这个 SentencePiece 模型里有重复的词元"
    ),
    "sentencepiece_file_invalid": Message("{path}: {error}", "{path}：{error}"),
    "tokenizer_kind_unknown": Message(
        "{path} has the unknown kind {kind}: this attendo supports {known}",
        "{path} 的 kind {kind} 未知：本版 attendo 支持 {known}",
    ),
    "markup_kind_unknown": Message(
        "unknown markup format {kind!r}: use {known}",
        "未知的标记格式 {kind!r}：请用 {known}",
        {"known": {"html or xml": "html 或 xml"}},
    ),
    "translation_count_mismatch": Message(
        "each text needs one translation: {count} translations for {expected} texts",
        "每段文本需要一个译文：现有 {count} 个译文，{expected} 段文本",
    ),
    "dropout_out_of_range": Message(
        "tokenizer.dropout must be at least 0 and less than 1, not {rate}",
        "tokenizer.dropout 必须不小于 0 且小于 1，不能是 {rate}",
    ),
    "dropout_key_count_mismatch": Message(
        "each sentence needs one key: {keys} keys for {sentences} sentences",
        "每个句子需要一个键：现有 {keys} 个键，{sentences} 个句子",
    ),
    "dropout_with_unused_piece": Message(
        "the tokenizer has the unused piece {piece!r}: train one without unused pieces, or leave dropout at 0",
        "分词器含有未使用的词元 {piece!r}：请训练一个没有这种词元的分词器，或让 dropout 保持为 0",
    ),
    "not_a_sentencepiece_model": Message(
        "this is not a SentencePiece model; {fix}",
        "这不是 SentencePiece 模型；{fix}",
        {"fix": {"copy the folder again": "请重新复制文件夹"}},
    ),
    "sentencepiece_piece_invalid": Message(
        "this is not a SentencePiece model ({reason}); {fix}",
        "这不是 SentencePiece 模型（{reason}）；{fix}",
        {"fix": {"copy the folder again": "请重新复制文件夹"}},
    ),
    "sentencepiece_training_failed": Message(
        "SentencePiece cannot be trained on this text: {reason}", "无法用这些文本训练 SentencePiece：{reason}"
    ),
    "control_ids_mismatch": Message(
        "pad, unk, bos and eos must have the ids 0, 1, 2, 3, not {ids}: train the tokenizer with attendo",
        "pad、unk、bos 和 eos 的编号必须是 0、1、2、3，不能是 {ids}；请用 attendo 训练分词器",
    ),
    "sentencepiece_byte_pieces_missing": Message(
        "this SentencePiece model has no byte pieces: train it with byte_fallback",
        "这个 SentencePiece 模型没有字节词元；训练时请打开 byte_fallback",
    ),
    "vocabulary_size_out_of_range": Message(
        "the vocabulary size cannot be {size}: give a size such as 8000",
        "词表大小不能是 {size}：请给出 8000 这样的大小",
    ),
    "tokenizer_training_text_empty": Message(
        "there is no text to train a tokenizer on: the input is empty", "没有可用来训练分词器的文本：输入是空的"
    ),
    "vocabulary_below_character_count": Message(
        "vocabulary size {size} is too small for this text: the minimum is {minimum}",
        "词表大小 {size} 对这些文本太小：至少为 {minimum}",
    ),
    "subword_kind_unknown": Message(
        "kind must be bpe or unigram, not {kind!r}", "kind 必须是 bpe 或 unigram，不能是 {kind!r}"
    ),
    "sentencepiece_symbols_mismatch": Message(
        "{path}: its symbols differ from those of {name}.tokenizer.json; copy the model folder again",
        "{path}：符号与 {name}.tokenizer.json 中的不同；请重新复制模型文件夹",
    ),
    "sentencepiece_symbols_invalid": Message("{error}", "{error}"),
    "training_text_unpaired_surrogate": Message(
        "the text {text!r} contains an unpaired surrogate: save the file as UTF-8",
        "文本 {text!r} 含有不完整的代理对：请把文件存为 UTF-8",
    ),
    "symbols_not_a_list": Message(
        "tokenizer.symbols must be a list of strings, not {value}", "tokenizer.symbols 必须是字符串列表，不能是 {value}"
    ),
    "symbol_duplicate": Message("tokenizer.symbols: {symbol} occurs twice", "tokenizer.symbols：{symbol} 出现了两次"),
    "symbol_has_whitespace": Message(
        "tokenizer.symbols: {symbol} must be a non-empty string without whitespace",
        "tokenizer.symbols：{symbol} 必须是不含空白的非空字符串",
    ),
    "symbol_is_control_piece": Message(
        "tokenizer.symbols: {symbol} is a control piece, which cannot occur in a text: choose another symbol",
        "tokenizer.symbols：{symbol} 是控制词元，不能出现在文本中：请换一个符号",
    ),
    "symbol_is_byte_piece": Message(
        "tokenizer.symbols: {symbol} is the name of a byte: choose another symbol",
        "tokenizer.symbols：{symbol} 是字节的名字：请换一个符号",
    ),
    "symbol_has_reserved_character": Message(
        "tokenizer.symbols: {symbol} must not contain ▁, NUL or an unpaired surrogate",
        "tokenizer.symbols：{symbol} 不能含有 ▁、NUL 或不完整的代理对",
    ),
    "text_unpaired_surrogate": Message(
        "the text {text!r} contains an unpaired surrogate: send valid Unicode",
        "文本 {text!r} 含有不完整的代理对：请使用有效的 Unicode",
    ),
    "id_outside_vocabulary": Message(
        "id {token_id} is outside the vocabulary: ids go from 0 to {last}",
        "编号 {token_id} 超出了词表：编号从 0 到 {last}",
    ),
    "vocabulary_too_small": Message(
        "vocabulary size {size} is too small: the minimum is {minimum}", "词表大小 {size} 太小：至少为 {minimum}"
    ),
    "vocabulary_text_empty": Message(
        "there is no text to build a tokenizer from: the input is empty", "没有可用来建立分词器的文本：输入是空的"
    ),
    "piece_unpaired_surrogate": Message(
        "the text contains an unpaired surrogate, {piece!r}: save the file as UTF-8",
        "文本含有 {piece!r}，其中有不完整的代理对：请把文件存为 UTF-8",
    ),
}
