"""Messages of the network and its training."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "training_diverged": Message(
        "the loss or gradient of {steps} steps in a row is not a number: lower train.peak_lr, or look at the pairs that skipped.jsonl names",
        "连续 {steps} 步的损失或梯度不是数：请降低 train.peak_lr，或检查 skipped.jsonl 列出的句对",
    ),
    "unknown_preset": Message(
        "unknown preset {preset}{suggestion}; there are {presets}", "未知预设 {preset}{suggestion}；现有：{presets}"
    ),
    "vocabulary_size_missing": Message(
        "give vocab_size, or source_vocab_size and target_vocab_size",
        "请给出 vocab_size，或同时给出 source_vocab_size 和 target_vocab_size",
    ),
    "decoder_only_source_vocabulary": Message(
        "a decoder-only network (num_encoder_layers 0) has no source_vocab_size",
        "只有解码器的网络（num_encoder_layers 0）没有 source_vocab_size：请去掉",
    ),
    "d_model_not_divisible": Message(
        "d_model must be a multiple of num_heads: {d_model} and {num_heads}",
        "d_model 必须是 num_heads 的倍数：现为 {d_model} 和 {num_heads}",
    ),
    "sinusoidal_d_model_odd": Message(
        "sinusoidal positions need an even d_model, not {d_model}",
        "正弦位置编码（sinusoidal）要求 d_model 为偶数，不能是 {d_model}",
    ),
    "rotary_head_width_odd": Message(
        "rotary positions need an even head width (d_model / num_heads), not {head_width}",
        "旋转位置编码（rotary）要求头的宽度（d_model / num_heads）为偶数，不能是 {head_width}",
    ),
    "tied_vocabulary_not_joint": Message(
        "tie all needs one joint vocabulary, not {source_size} source and {target_size} target tokens: make the tokenizer joint, or set tie to output",
        "tie all 需要一个共用词表，而源文词表有 {source_size} 个词元，译文词表有 {target_size} 个：请让分词器共用（joint），或把 tie 设为 output",
    ),
    "vocabulary_sizes_conflict": Message(
        "vocab_size {size} and {option} {value} disagree: give one of them",
        "vocab_size {size} 与 {option} {value} 不一致：请只给出其中之一",
    ),
    "position_setting_unused": Message(
        "{option} means nothing with {positions} positions: leave it out",
        "位置编码为 {positions} 时 {option} 不起作用：请去掉",
    ),
    "unknown_attention_site": Message(
        "the network has no attention named {site}; it has {sites}", "网络中没有名为 {site} 的注意力；现有：{sites}"
    ),
    "head_scale_not_finite": Message(
        "head {head} of {site} cannot be scaled by {scale}: 0 is off, 1 as it is",
        "{site} 的头 {head} 不能乘以 {scale}：请用有限的数（0 表示关闭，1 表示不变）",
    ),
    "attention_head_out_of_range": Message(
        "{site} has no head {head}: it has {count}, counted from 0",
        "{site} 没有头 {head}：共有 {count} 个头，从 0 数起",
    ),
    "trace_source_mismatch": Message(
        "a decoder-only network reads no source, and any other one needs it",
        "只有解码器的网络的 source_ids 必须是 None，其他网络必须给出 source_ids",
    ),
    "traced_id_outside_vocabulary": Message(
        "a token id is outside the vocabulary of {size} tokens (0 to {last})",
        "有词元编号超出了词表：词表有 {size} 个词元（0 到 {last}）",
    ),
    "trace_exceeds_max_length": Message(
        "the {side} has {count} tokens, more than the learned positions (max_length {max_length}): shorten it, or take a model with a larger max_length",
        "{side}有 {count} 个词元，超过了学习的位置数（max_length {max_length}）：请缩短，或换用 max_length 更大的模型",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "trace_layer_out_of_range": Message(
        "there is no layer {layer}: the model has {encoder_layers} encoder layers and {decoder_layers} decoder layers, counted from 0",
        "没有第 {layer} 层：模型有 {encoder_layers} 层编码器和 {decoder_layers} 层解码器，从 0 数起",
    ),
    "trace_too_many_numbers": Message(
        "a trace of {source} source and {target} target tokens has {count:,} numbers of attention alone, more than {limit:,}: {fix}shorten the text",
        "追踪 {source} 个源文词元和 {target} 个译文词元，仅注意力就有 {count:,} 个数，超过上限 {limit:,} 个：{fix}缩短文本",
        {"fix": {"choose one layer (layer=0, --layer 0), or ": "请只选一层（layer=0，--layer 0），或"}},
    ),
    "token_id_outside_vocabulary": Message(
        "token id {token_id} is outside the vocabulary of {size} tokens (0 to {last})",
        "词元编号 {token_id} 超出了词表：词表有 {size} 个词元（0 到 {last}）",
    ),
    "mask_shape_or_dtype_invalid": Message(
        "a mask is boolean (True = may be looked at) and shaped like its ids {expected}, not {dtype} {found}",
        "掩码必须是布尔型（True 表示可以关注），形状与词元编号 {expected} 相同，不能是 {dtype} {found}",
    ),
    "decoder_only_source_given": Message(
        "a decoder-only network (num_encoder_layers 0) reads no source: give None for it",
        "只有解码器的网络（num_encoder_layers 0）不读源文：请传入 None",
    ),
    "encoder_source_missing": Message(
        "an encoder–decoder network needs a source: only with num_encoder_layers 0 may it be None",
        "编码器–解码器网络需要源文：只有 num_encoder_layers 为 0 时才能是 None",
    ),
    "decoder_only_memory_given": Message(
        "a decoder-only network (num_encoder_layers 0) has no use for a memory: give None for it",
        "只有解码器的网络（num_encoder_layers 0）不使用编码器的输出（memory）：请传入 None",
    ),
    "tap_weights_shape_mismatch": Message(
        "a tap returned weights {found} at {site}, where they are {expected}: return None, or as many",
        "tap 在 {site} 返回的权重形状为 {found}，应为 {expected}：请返回 None，或形状相同的权重",
    ),
    "sequence_exceeds_max_length": Message(
        "a sequence of {count} tokens is longer than the learned positions (max_length {max_length}): shorten or split it, or train with a larger max_length",
        "序列有 {count} 个词元，超过了学习的位置数（max_length {max_length}）：请缩短或拆分，或用更大的 max_length 训练",
    ),
    "no_checkpoint_to_average": Message("{folder} has no checkpoint to average", "{folder} 中没有可以平均的检查点"),
    "checkpoints_not_averageable": Message(
        "{path} cannot be averaged with {first}: {reason}", "{path} 不能与 {first} 平均：{reason}"
    ),
    "all_checkpoints_damaged": Message(
        "no checkpoint in {folder} is whole: {reasons}", "{folder} 中的检查点都已损坏：{reasons}"
    ),
    "checkpoint_manifest_mismatch": Message(
        "{path} belongs to another checkpoint: restore the folder from a copy",
        "{path} 属于另一个检查点：请从备份恢复文件夹",
    ),
    "steps_and_epochs_conflict": Message(
        "train.steps and train.epochs both say how long to train: give one of them",
        "train.steps 和 train.epochs 都规定训练多久：请只给出其中之一",
    ),
    "noam_with_peak_lr": Message(
        "schedule noam computes its peak from d_model and warmup: leave peak_lr out",
        "schedule noam 由 d_model 和 warmup 算出最高学习率：请去掉 peak_lr",
    ),
    "noam_without_warmup": Message("schedule noam needs a warmup of at least 1", "schedule noam 要求 warmup 至少为 1"),
    "final_lr_unused": Message(
        "final_lr means nothing with schedule {schedule}: leave it out",
        "schedule 为 {schedule} 时 final_lr 不起作用：请去掉",
    ),
    "sharding_with_compile": Message(
        "sharding full is not compiled: leave compile at auto, or sharding at none",
        "sharding full 不能编译：请让 compile 保持 auto，或让 sharding 保持 none",
    ),
    "capture_not_supported": Message(
        "train.capture on needs one process on one GPU: leave it at auto",
        "train.capture on 需要单个进程和单块 GPU：请保持 auto",
    ),
    "checkpoint_saves_failed": Message(
        "{count} checkpoints in a row could not be written: {error}", "连续 {count} 个检查点无法写入：{error}"
    ),
    "all_weights_frozen": Message(
        "train.freeze: {parts} are all weights of this network: leave one part out",
        "train.freeze：{parts} 包含了网络的全部权重：请去掉一个部分",
    ),
    "frozen_part_without_weights": Message(
        "train.freeze: this network has no weights of its own in {part}: leave {part} out",
        "train.freeze：这个网络的 {part} 没有自己的权重：请去掉 {part}",
    ),
    "checkpoint_does_not_fit": Message(
        "{file} of the checkpoint does not fit the run's settings: {faults} ({count} in all)",
        "检查点的 {file} 与训练设置不符：{faults}（共 {count} 处）",
    ),
    "checkpoint_state_invalid": Message(
        "state.json of the checkpoint does not fit this version: {reason}", "检查点的 state.json 与本版本不符：{reason}"
    ),
}
