#!/usr/bin/env python3
"""python_evals: lm-eval and guidellm, unchanged, against kvant serve (./dev clients).  Each log-likelihood that lm-eval finds is compared
with one of our own, asked for token by token; all is read from local files.  A package that is missing is a SKIP."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from gguf_edit import Reader    # noqa: E402
from serve import DEMO, Checks, Server    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("python_evals")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", LMEVAL_LOG_LEVEL="ERROR")
STORIES = ["Once upon a time there was a", "The sea was calm and the", "She opened the old door and"]
CHOICES = [" little girl who lived by the sea", " boat", " quickly, quickly"]
CHOICE, ROLL, MAKE, CHAT = "ours_choice", "ours_rolling", "ours_generate", "ours_chat"
GENERATES = {"output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "{{want}}",
             "generation_kwargs": {"until": ["."], "max_gen_toks": 16, "temperature": 0.0},
             "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]}
TASKS = {
    CHOICE: {"output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{best}}",
             "target_delimiter": "", "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}]},
    ROLL: {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
           "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}]},
    MAKE: GENERATES, CHAT: GENERATES}


def tokens(s, text):
    return s.post("/tokenize", {"content": text})[1]["tokens"]


def likelihood(s, ids, n):
    """The log-probability of ids[n:] behind ids[:n], and whether each is the likeliest: every token in a request of its own, which a bias
    makes come out; log-probabilities are the model's, before it."""
    total, greedy = 0.0, True
    for at in range(n, len(ids)):
        body = {"prompt": [ids[:at]], "max_tokens": 1, "temperature": 0, "logprobs": 1}
        p = s.post("/v1/completions", {**body, "logit_bias": {str(ids[at]): 100}})[1]["choices"][0]["logprobs"]
        total += p["token_logprobs"][0]
        greedy &= p["token_logprobs"][0] >= max(p["top_logprobs"][0].values())
    return total, greedy


def choice_likelihood(s, text, choice):
    return likelihood(s, tokens(s, text + choice), len(tokens(s, text)))


def same(got, want):
    return abs(got[0] - want[0]) < 2e-3 * max(1, abs(want[0])) and got[1] == want[1]


def answer(s, text, chat):
    body = {"temperature": 0, "max_tokens": 16, "stop": ["."]}
    if chat:
        return s.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]})[1]["choices"][0]["message"]["content"]
    return s.post("/v1/completions", {**body, "prompt": text})[1]["choices"][0]["text"]


def write_tasks(s, folder):
    """The tasks, with what this model says as what is wanted: every score is then 1."""
    for name, task in TASKS.items():
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
            for text in STORIES:
                all_of = [choice_likelihood(s, text, c)[0] for c in CHOICES] if name == CHOICE else [0]
                want = answer(s, text, name == CHAT) if "generation_kwargs" in task else ""
                f.write(json.dumps({"text": text, "choices": CHOICES, "best": all_of.index(max(all_of)), "want": want}) + "\n")
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:    # JSON is YAML
            json.dump({"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f.name[:-4] + "jsonl"}},
                       "test_split": "test", **task}, f)


def evaluate(s, folder, names, chat=False, **args):
    import lm_eval
    from lm_eval.tasks import TaskManager
    path = "/v1/chat/completions" if chat else "/v1/completions"
    return lm_eval.simple_evaluate(
        model="local-chat-completions" if chat else "local-completions", tasks=names, apply_chat_template=chat, bootstrap_iters=0,
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        model_args={"model": "m", "base_url": f"http://127.0.0.1:{s.port}{path}", "max_retries": 1, **args})


def check_samples(s, r, name):
    samples = r["samples"][name]
    C.ok(len(samples) == len(STORIES), f"{name}: {len(samples)} samples")
    for sample in samples:
        text = sample["doc"]["text"]
        if name == CHOICE:
            got = [x[0] for x in sample["resps"]]
            want = [choice_likelihood(s, text, c) for c in CHOICES]
            C.ok(len(got) == len(want) and all(same(a, b) for a, b in zip(got, want)), f"{name}: {text}: got {got}, want {want}")
        elif name == ROLL:
            first = s.get("/tokenizer_info")[1]["bos_token"] or s.get("/tokenizer_info")[1]["eos_token"]
            want = likelihood(s, tokens(s, first) + tokens(s, text), 1)
            got = sample["resps"][0][0]
            got = got[0] if isinstance(got, (list, tuple)) else got
            C.ok(same((got, True), (want[0], True)), f"{name}: {text}: got {got}, want {want}")
        else:
            C.ok(sample["resps"][0][0] == sample["doc"]["want"] != "", f"{name}: got {sample['resps']}, want {sample['doc']['want']!r}")


def check_lm_eval(s, folder):
    write_tasks(s, folder)
    ways = [({"batch_size": 4}, [CHOICE, ROLL, MAKE], False),                                           # token ids, four prompts a request
            ({"num_concurrent": 4, "tokenized_requests": False}, [CHOICE, MAKE], False),                # texts, side by side
            ({"tokenizer_backend": "remote", "num_concurrent": 3}, [CHOICE], False),
            ({"tokenizer_backend": "none"}, [MAKE], False), ({}, [CHAT], True)]
    for args, names, chat in ways:
        r = evaluate(s, folder, names, chat, **args)
        for name in names:
            check_samples(s, r, name)
            score = r["results"][name].get({CHOICE: "acc,none", ROLL: "bits_per_byte,none"}.get(name, "exact_match,none"))
            C.ok(score == 1 if name != ROLL else 0 < score < 10, f"{args} {name}: {r['results'][name]}")


# ---- guidellm ----

def strings_of(path, name):
    """An array of texts of a GGUF file."""
    with open(path, "rb") as f:
        r = Reader(f.read())
    _, _, _, n = r.take("IIQQ")
    for _ in range(n):
        key, kind = r.text().decode(), r.take("I")
        if key == name:
            return [r.text().decode() for _ in range(r.take("IQ")[1])]
        r.skip(kind)
    raise KeyError(name)


def write_tokenizer(folder):
    """The model's tokenizer as guidellm reads one: it makes prompts of a wanted length with it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocab = {text: i for i, text in enumerate(strings_of(DEMO, "tokenizer.ggml.tokens"))}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in strings_of(DEMO, "tokenizer.ggml.merges")]))
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>").save_pretrained(folder)


def bench(s, folder, data, profile, request="/v1/completions", requests=8):
    """The benchmarks of guidellm's report."""
    path = os.path.join(folder, "report.json")
    r = subprocess.run(
        [sys.executable, "-m", "guidellm", "run", "--disable-console", "--output", f"kind=json,path={path}", "--profile", profile, "--data", data,
         "--backend", f"kind=openai_http,target=http://127.0.0.1:{s.port},request_format={request}", "--constraint", f"kind=max_requests,count={requests}",
         "--tokenizer", f"kind=huggingface_auto,model={folder}"], capture_output=True, text=True, timeout=300, check=False)
    if not C.ok(r.returncode == 0, f"guidellm {profile} {request}: {r.stderr[-1000:]}"):
        return []
    with open(path, encoding="utf-8") as f:
        return json.load(f)["benchmarks"]


def prompt_tokens(s, body):
    if "messages" in body:
        return s.post("/v1/chat/completions/input_tokens", {"messages": body["messages"]})[1]["input_tokens"]
    if "input" in body:
        return s.post("/v1/responses/input_tokens", {"input": body["input"]})[1]["input_tokens"]
    return len(tokens(s, body["prompt"]))


def check_requests(s, b, requests, name):
    """All were answered; guidellm's counts are the server's own, and what was asked for came."""
    done = b["requests"]["successful"]
    C.ok(len(done) == requests and not b["requests"]["errored"] and not b["requests"]["incomplete"],
         f"{name}: {len(done)} of {requests}, {len(b['requests']['errored'])} errors, {len(b['requests']['incomplete'])} unfinished")
    for r in done:
        body = json.loads(r["request_args"])["body"]
        most = [body[k] for k in ("max_tokens", "max_completion_tokens", "max_output_tokens") if k in body]
        got = r["input_metrics"]["text_tokens"], r["output_metrics"]["text_tokens"]
        C.ok(got == (prompt_tokens(s, body), most[0]), f"{name}: counted {got}, want {prompt_tokens(s, body)} and {most[0]}")
    return [r["input_metrics"]["text_tokens"] for r in done]


def check_guidellm(s, folder):
    write_tokenizer(folder)
    path = os.path.join(folder, "load.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        for i in range(8):
            f.write(json.dumps({"prompt": f"{STORIES[i % 3]} number {i} " + "small boat and " * i, "output_tokens_count": 5 + i}) + "\n")
    loaded = f"kind=json_file,path={path}"
    for request in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        for b in bench(s, folder, loaded, "kind=concurrent,streams=3", request):
            check_requests(s, b, 8, "concurrent " + request)
    for b in bench(s, folder, loaded, "kind=constant,rate=20"):
        check_requests(s, b, 8, "constant")
    made = "kind=synthetic_text,prompt_tokens=96,output_tokens=12"
    sweep = bench(s, folder, made, "kind=sweep,sweep_size=4", requests=6)
    C.ok(len(sweep) == 4, f"sweep: {len(sweep)} benchmarks")
    for b in sweep:
        lengths = check_requests(s, b, 6, "sweep") or [0]
        C.ok(92 <= min(lengths) and max(lengths) <= 104, f"sweep: prompts of {lengths} tokens, want about 96")


def main():
    with Server(BUILD, "-np", "4", "-c", "4096") as s, tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder      # before datasets is imported
        for package, check in (("lm_eval", check_lm_eval), ("guidellm", check_guidellm)):
            if importlib.util.find_spec(package) is None:
                print(f"SKIP python_evals: no package {package}")
                continue
            try:
                check(s, folder)
            except Exception as e:      # noqa: BLE001: whatever a client raises is this test's failure
                C.ok(False, f"{package}: {type(e).__name__}: {e}")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
