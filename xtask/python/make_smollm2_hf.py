#!/usr/bin/env python3
"""Turn a GGUF file into the model folder that vLLM serves: weights, tokenizer, chat template.

    make_smollm2_hf.py GGUF FOLDER
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(pathlib.Path, sys.argv[1:])
    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    target.mkdir(parents=True)
    # The weights are plain numbers by now; what still says GGUF would make vLLM look for it.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
