"""Messages of the network and its training."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "training_diverged": Message(
        "the loss or gradient was NaN or infinite in {steps} consecutive steps: lower train.peak_lr, or check the pairs listed in skipped.jsonl",
        "连续 {steps} 步的损失或梯度为 NaN 或无穷大：请降低 train.peak_lr，或检查 skipped.jsonl 列出的句对",
    ),
    "unknown_preset": Message(
        "unknown preset {preset}{suggestion}: use {presets}", "未知预设 {preset}{suggestion}：可用 {presets}"
    ),
    "vocabulary_size_missing": Message(
        "give vocab_size, or source_vocab_size and target_vocab_size",
        "请给出 vocab_size，或同时给出 source_vocab_size 和 target_vocab_size",
    ),
    "decoder_only_source_vocabulary": Message(
        "a decoder-only network (num_encoder_layers 0) has no source_vocab_size: leave it out",
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
        "tie all needs a joint vocabulary, not {source_size} source and {target_size} target tokens: set tokenizer.joint to true, or tie to output",
        "tie all 需要共用词表，而源文词表有 {source_size} 个词元，译文词表有 {target_size} 个：请把 tokenizer.joint 设为 true，或把 tie 设为 output",
    ),
    "vocabulary_sizes_conflict": Message(
        "vocab_size {size} and {option} {value} differ: give only one of them",
        "vocab_size {size} 与 {option} {value} 不一致：请只给出其中之一",
    ),
    "position_setting_unused": Message(
        "{option} has no effect with {positions} positions: leave it out",
        "位置编码为 {positions} 时 {option} 不起作用：请去掉",
    ),
    "unknown_attention_site": Message(
        "the network has no attention site {site}: use {sites}", "网络中没有名为 {site} 的注意力；现有：{sites}"
    ),
    "head_scale_not_finite": Message(
        "head {head} of {site} cannot be scaled by {scale}: use a finite number (0 removes the head, 1 keeps it unchanged)",
        "{site} 的头 {head} 不能乘以 {scale}：请用有限的数（0 表示关闭，1 表示不变）",
    ),
    "attention_head_out_of_range": Message(
        "{site} has no head {head}: it has {count} heads, counted from 0",
        "{site} 没有头 {head}：共有 {count} 个头，从 0 数起",
    ),
    "trace_source_mismatch": Message(
        "source_ids must be None for a decoder-only network, and is required for any other network",
        "只有解码器的网络的 source_ids 必须是 None，其他网络必须给出 source_ids",
    ),
    "traced_id_outside_vocabulary": Message(
        "a token id is outside the vocabulary: ids must be from 0 to {last} ({size} tokens)",
        "有词元编号超出了词表：词表有 {size} 个词元（0 到 {last}）",
    ),
    "trace_exceeds_max_length": Message(
        "the {side} has {count} tokens, but the model has {max_length} learned positions (max_length): shorten it, or use a model with a larger max_length",
        "{side}有 {count} 个词元，超过了学习的位置数（max_length {max_length}）：请缩短，或换用 max_length 更大的模型",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "trace_layer_out_of_range": Message(
        "there is no layer {layer}: the model has {encoder_layers} encoder layers and {decoder_layers} decoder layers, counted from 0",
        "没有第 {layer} 层：模型有 {encoder_layers} 层编码器和 {decoder_layers} 层解码器，从 0 数起",
    ),
    "trace_too_many_numbers": Message(
        "a trace of {source} source and {target} target tokens has {count:,} attention weights, more than the limit of {limit:,}: {fix}shorten the text",
        "追踪 {source} 个源文词元和 {target} 个译文词元，仅注意力就有 {count:,} 个数，超过上限 {limit:,} 个：{fix}缩短文本",
        {"fix": {"choose one layer (layer=0, --layer 0), or ": "请只选一层（layer=0，--layer 0），或"}},
    ),
    "token_id_outside_vocabulary": Message(
        "token id {token_id} is outside the vocabulary: ids must be from 0 to {last} ({size} tokens)",
        "词元编号 {token_id} 超出了词表：词表有 {size} 个词元（0 到 {last}）",
    ),
    "mask_shape_or_dtype_invalid": Message(
        "a mask must be boolean (True: may be attended to) and have the shape of its ids {expected}, not {dtype} {found}",
        "掩码必须是布尔型（True 表示可以关注），形状与词元编号 {expected} 相同，不能是 {dtype} {found}",
    ),
    "decoder_only_source_given": Message(
        "a decoder-only network (num_encoder_layers 0) reads no source: pass None for it",
        "只有解码器的网络（num_encoder_layers 0）不读源文：请传入 None",
    ),
    "encoder_source_missing": Message(
        "an encoder–decoder network needs a source: it may be None only if num_encoder_layers is 0",
        "编码器–解码器网络需要源文：只有 num_encoder_layers 为 0 时才能是 None",
    ),
    "decoder_only_memory_given": Message(
        "a decoder-only network (num_encoder_layers 0) uses no memory: pass None for it",
        "只有解码器的网络（num_encoder_layers 0）不使用编码器的输出（memory）：请传入 None",
    ),
    "tap_weights_shape_mismatch": Message(
        "the tap returned weights of shape {found} at {site}, but the shape there is {expected}: return None, or weights of the same shape",
        "tap 在 {site} 返回的权重形状为 {found}，应为 {expected}：请返回 None，或形状相同的权重",
    ),
    "sequence_exceeds_max_length": Message(
        "a sequence has {count} tokens, but the model has {max_length} learned positions (max_length): shorten or split it, or train with a larger max_length",
        "序列有 {count} 个词元，超过了学习的位置数（max_length {max_length}）：请缩短或拆分，或用更大的 max_length 训练",
    ),
    "no_checkpoint_to_average": Message(
        "{folder} has no checkpoint to average: train until one is saved, or give another folder",
        "{folder} 中没有可以平均的检查点：请训练到保存了检查点为止，或换一个文件夹",
    ),
    "checkpoints_not_averageable": Message(
        "{path} cannot be averaged with {first}: {reason}", "{path} 不能与 {first} 平均：{reason}"
    ),
    "all_checkpoints_damaged": Message(
        "every checkpoint in {folder} is damaged: {reasons}", "{folder} 中的检查点都已损坏：{reasons}"
    ),
    "checkpoint_manifest_mismatch": Message(
        "{path} belongs to another checkpoint: restore the folder from a copy",
        "{path} 属于另一个检查点：请从备份恢复文件夹",
    ),
    "steps_and_epochs_conflict": Message(
        "train.steps and train.epochs both set the length of training: give only one of them",
        "train.steps 和 train.epochs 都规定训练多久：请只给出其中之一",
    ),
    "noam_with_peak_lr": Message(
        "schedule noam computes its peak learning rate from d_model and warmup: leave peak_lr out",
        "schedule noam 由 d_model 和 warmup 算出最高学习率：请去掉 peak_lr",
    ),
    "noam_without_warmup": Message(
        "schedule noam needs a warmup of at least 1 step", "schedule noam 要求 warmup 至少为 1"
    ),
    "final_lr_unused": Message(
        "final_lr has no effect with schedule {schedule}: leave it out",
        "schedule 为 {schedule} 时 final_lr 不起作用：请去掉",
    ),
    "sharding_with_compile": Message(
        "sharding full cannot be combined with compile: leave compile at auto, or set sharding to none",
        "sharding full 不能编译：请让 compile 保持 auto，或让 sharding 保持 none",
    ),
    "capture_not_supported": Message(
        "train.capture on needs one process on one GPU: leave it at auto",
        "train.capture on 需要单个进程和单块 GPU：请保持 auto",
    ),
    "checkpoint_saves_failed": Message(
        "{count} consecutive checkpoints could not be written: {error}", "连续 {count} 个检查点无法写入：{error}"
    ),
    "all_weights_frozen": Message(
        "train.freeze: {parts} include all weights of this network: leave one part out",
        "train.freeze：{parts} 包含了网络的全部权重：请去掉一个部分",
    ),
    "frozen_part_without_weights": Message(
        "train.freeze: {part} has no weights of its own in this network: leave {part} out",
        "train.freeze：这个网络的 {part} 没有自己的权重：请去掉 {part}",
    ),
    "checkpoint_does_not_fit": Message(
        "{file} of the checkpoint does not match the settings of the run: {faults} ({count} mismatches in total)",
        "检查点的 {file} 与训练设置不符：{faults}（共 {count} 处）",
    ),
    "checkpoint_state_invalid": Message(
        "state.json of the checkpoint cannot be read by this version of attendo: {reason}",
        "检查点的 state.json 与本版本不符：{reason}",
    ),
}
