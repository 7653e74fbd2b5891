"""dynamo_frontend: workers of kvant.dynamo behind NVIDIA Dynamo's frontend: no etcd and no NATS, discovery through a folder, KV routing.
Dynamo makes the tokens itself: `checkpoint` writes the demo model's vocabulary as the folder of Hugging Face that it wants."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from load import CONVERSATIONS, MODEL, NAME, OPTIONS, ROOT, TURNS, WORKERS, Conversation, end, free_ports, talk, wait_for

sys.path += [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests", "support")]
import gguf_edit                # noqa: E402
import check_tokenizer_hf       # noqa: E402

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
#: kvant's chatml, which the server takes for this model.
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def tokenizer():
    """tokenizer.json of the model's keys."""
    vocab = {text: i for i, text in enumerate(gguf_edit.strings(MODEL, "tokenizer.ggml.tokens"))}
    split = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in check_tokenizer_hf.PATTERNS["qwen35"]]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "added_tokens": [{"id": vocab[t], "content": t, **flags} for t in SPECIAL], "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, level]}, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "vocab": vocab, "merges": gguf_edit.strings(MODEL, "tokenizer.ggml.merges")}}


def checkpoint(folder):
    """The three files that Dynamo reads; no weights."""
    files = {"tokenizer.json": tokenizer(),
             "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "eos_token": SPECIAL[0]},
             "config.json": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_position_embeddings": 32768, "vocab_size": 8192,
                             "num_hidden_layers": 8, "num_attention_heads": 4, "hidden_size": 384, "bos_token_id": 0, "eos_token_id": 0}}
    for name, value in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
    return folder


class Cluster:
    """A frontend and its workers; `folder` is theirs alone: checkpoint, discovery, prefixes."""

    def __init__(self, python, folder, store, options, log):
        self.python, self.log = python, log
        self.env = {**os.environ, "DYN_FILE_KV": os.path.join(folder, "discovery"), "HF_HUB_OFFLINE": "1", "DYN_LOG": "warn"}
        self.store = ["--kv-store", os.path.join(folder, "store")] if store else []
        self.tokens = os.path.join(folder, "checkpoint")
        for name in (self.tokens, os.path.join(folder, "store")):
            os.makedirs(name)
        checkpoint(self.tokens)
        port, = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.processes = []
        try:
            self.frontend = self.start("dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port), "--router-mode", "kv",
                                       "--kv-cache-block-size", "64", "--migration-limit", "3", *options)
            wait_for(self.url + "/health", self.frontend, "Dynamo's frontend")
            self.workers = [self.start("kvant.dynamo", "-m", MODEL, "--tokenizer", self.tokens, "--", *OPTIONS, *self.store) for _ in range(WORKERS)]
            wait_for(self.url + "/health", self.frontend, "a worker of Dynamo", ready=self.complete)
            wait_for(self.url + "/v1/models", self.frontend, "Dynamo's model", ready=lambda text: NAME in text)
            time.sleep(3)       # its subscriptions
        except BaseException:
            self.close()
            raise

    def start(self, module, *options):
        at = options.index("--") if "--" in options else len(options)
        command = [self.python, "-m", module, *options[:at], "--discovery-backend", "file", *options[at:]]
        self.processes.append(subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log))
        return self.processes[-1]

    def complete(self, text):
        """All workers answer for the model."""
        for w in self.workers:
            if w.poll() is not None:
                raise SystemExit(f"cluster: a worker of Dynamo ended with {w.returncode}")
        return sum(i.get("endpoint") == "generate" for i in json.loads(text).get("instances", [])) == WORKERS

    def kill_one(self, turn):
        if turn != TURNS // 3:
            return
        self.workers[1].send_signal(signal.SIGKILL)
        self.workers[1].wait(60)

    def close(self):
        for process in reversed(self.processes):
            end(process)


def row(what, python, options, killed, log):
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(python, folder, killed, options, log)
        try:
            found = talk(cluster.url, [Conversation(i) for i in range(CONVERSATIONS)], TURNS, *([cluster.kill_one] if killed else []))
        finally:
            cluster.close()
    return {"what": what, "policy": "kv", "folder": killed, **found}


def rows(python, log):
    """By KV routing; prompt tokens that a worker lacks weigh four times against its load; with a shared folder, and a worker killed."""
    heavy = ["--router-prefill-load-scale", "4"]
    return [row("dynamo", python, [], False, log), row("dynamo, prompts weigh 4", python, heavy, False, log),
            row("dynamo, a worker killed", python, heavy, True, log)]
