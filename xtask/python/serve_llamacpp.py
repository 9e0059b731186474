#!/usr/bin/env python3
"""Serve a GGUF file with llama.cpp's own HTTP server, as the Python package xllamacpp carries it.

    serve_llamacpp.py GGUF PORT THREADS STREAMS TOKENS_PER_STREAM turns|embeddings

Prints one line with the address when it is ready; runs until it is ended.
"""
import signal
import sys

import xllamacpp


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    model = sys.argv[1]
    port, threads, streams, tokens = map(int, sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_parallel = streams
    # Each stream has its own part of the context, which is this server's faster way for several streams.
    params.n_ctx = streams * tokens
    params.n_gpu_layers = 0
    params.use_jinja = True
    params.ui = False
    # This server makes either turns or vectors.
    if sys.argv[6] == "embeddings":
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
