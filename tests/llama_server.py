#!/usr/bin/env python3
"""llama_server: llama.cpp's own server tests against kvant serve (./dev clients).  They are not part of this repository: KVANT_LLAMA_TESTS names
tools/server/tests of a llama.cpp tree.  They run in a copy; changed are the launcher (flags mapped, a model of ours), and what is known of their
model alone is left out: its exact texts, and how many tokens its vocabulary makes of a text (LENGTHS: texts that a test wants to fill something are longer or shorter); a file
that they download is one of ours.  What fails is listed, with the
reason, in docs/evidence/llama-server-tests.md; a failure beyond that list, or one of the list that passes, fails this test.

With KVANT_LLAMA_PLAIN=1 nothing is mapped but the model and a template: their flags as they stand, their texts, their counts; the list is
docs/evidence/llama-server-plain.md.

One file in three parts: the test; the program that stands in for llama-server (--launch); a pytest plugin (when pytest imports it)."""
import collections
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PLAIN = os.environ.get("KVANT_LLAMA_PLAIN") == "1"
LIST = os.path.join(ROOT, "docs", "evidence", "llama-server-plain.md" if PLAIN else "llama-server-tests.md")
MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
TEMPLATE = "../../../models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"   # where none is asked for; as theirs it knows tools
NOT_MAPPED = {"--hf-repo", "--hf-file", "--model", "--model-url", "--mmproj-url", "--offline", "--ctx-size"}
# Their vocabularies make so many tokens of these texts that they fill a context or a batch; ours needs more text, or less.
LENGTHS = (("test_completion.py", '"I believe the meaning of life is"*32', '"I believe the meaning of life is"*96'),
          ("test_ctx_shift.py", '"prompt": LONG_TEXT,', '"prompt": LONG_TEXT * 4,'),
          ("test_ctx_shift.py", '"prompt": SHORT_TEXT,', '"prompt": SHORT_TEXT + SHORT_TEXT[:200],'),
          ("test_chat_completion.py", '"This is a test" * 10', '"This is a test" * 35'),
          ("test_speculative.py", '"Hello " * 248', '"Hello " * 80'),
          ("test_metrics.py", '"the quick brown fox jumps over the lazy dog"\n', '"the quick brown fox jumps over the lazy dog" * 8\n'))
# Comparisons with what only their model's vocabulary and weights give.
COUNTS = re.compile(r"""^(\s*)assert .*(?:\[["'](?:prompt_n|prompt_tokens|cached_tokens|cache_n|n_saved|n_restored|predicted_n)["']\]
                        \s==\s(?:n_prompt|n_cache|n_tokens|n_token_output|2\s\*\s9|6\b|\d\d+)|==\s"<s>\s|==\sbosId
                        |\['embedding'\]\)\s==\s\d|(?:most|least)_relevant\["index"\]\s==).*$""", re.M | re.X)

# ---- instead of llama-server ----


def model_of(flags):
    """The model; with a rank head, tokens to fill in between, or one before every text, for those who ask for such a model."""
    if flags.keys() & {"--rerank", "--reranking"}:
        return os.environ["KVANT_RANK_MODEL"]
    if "infill" in str(flags.get("--hf-repo")):
        return os.environ["KVANT_INFILL_MODEL"]
    return os.environ["KVANT_BOS_MODEL" if "bert" in str(flags.get("--hf-file")) else "KVANT_MODEL"]


ROUTED = ("ggml-org/tinygemma3-GGUF:Q8_0", "ggml-org/test-model-stories260K:F32", "ggml-org/test-model-stories260K-infill:F32")


DOWNLOADED, REMOTE_PRESET = "ggml-org/test-model-router-download", "ggml-org/test-preset-ci"     # of the hub of this test


def served(flags, out):
    """What is served: a model, or those of a router, which are in its cache there, and may be changed.  Every key administers there."""
    if not flags.keys() & {"--model", "--model-url", "--hf-repo", "--models-dir", "--models-preset"}:
        out = (["--models-preset", os.environ["KVANT_ROUTED"]] if PLAIN else ["--models-download"]) + out
    elif flags.get("--hf-repo") == REMOTE_PRESET and not PLAIN:
        out = ["--hf-repo", REMOTE_PRESET] + out
    elif not flags.keys() & {"--models-dir", "--models-preset"}:
        return ["--model", model_of(flags)] + out
    elif not PLAIN:
        out = ["--models-download"] + out
    return ["--admin-key" if x == "--api-key" and not PLAIN else x for x in out]


def mapped(args):
    """kvant's arguments.  -c counts the tokens of all slots there, of one here."""
    out, flags, i = [], {}, 0
    if not PLAIN:
        args = [x.replace("_", "-") if x.startswith("--") else x for x in args]     # as theirs reads them
    while i < len(args):
        takes = i + 1 < len(args) and (not args[i + 1].startswith("-") or args[i + 1].lstrip("-").isdigit())
        flags[args[i]] = args[i + 1] if takes else True
        out += [] if args[i] in NOT_MAPPED and not (PLAIN and args[i] == "--ctx-size") else args[i:i + 1 + takes]
        i += 1 + takes
    if not flags.keys() & {"--chat-template", "--chat-template-file"}:
        out += ["--chat-template-file", TEMPLATE]
    if PLAIN:
        return served(flags, out)
    if "--ctx-size" in flags:
        slots = 1 if "--kv-unified" in flags else int(flags.get("--parallel", 1))
        out += ["--ctx-size", str(int(flags["--ctx-size"]) // slots)]
    if "--metrics" in flags:
        out += ["--metrics-compat", "llamacpp"]
    else:
        out += ["--no-metrics"]                 # their default, as what follows
    if "--cors-origins" not in flags:
        out += ["--cors-origins", "*", "--cors-credentials", "--cors-headers", "*"]
    return served(flags, out)


# ---- within pytest ----


def pytest_configure():
    import utils                                # theirs
    if not PLAIN:
        utils.match_regex = lambda regex, text: isinstance(text, str)
    utils.ServerPreset.load_all = staticmethod(lambda: None)

    def no_download(url, output_file_path=None):
        if "shakespeare" in url:                # their adapter
            return os.environ["KVANT_ADAPTER"]
        if "tiny-llamas" in url:                # their draft model
            return os.environ["KVANT_DRAFT_MODEL"]
        raise RuntimeError(f"a download: {url}")
    utils.download_file = no_download
    if PLAIN:
        return
    add = utils.ServerProcess.make_request

    def without_own(self, method, path, *args, **kw):
        """Of /metrics only their names: kvant's own count scrapes too."""
        r = add(self, method, path, *args, **kw)
        if path == "/metrics" and isinstance(r.body, str):
            r.body = "".join(line + "\n" for line in r.body.splitlines() if "llamacpp:" in line)
        return r
    utils.ServerProcess.make_request = without_own


# ---- the test ----


def copy_tests(source, folder):
    """The tests at the same depth, beside what they read of their tree."""
    tests = os.path.join(folder, "tools", "server", "tests")
    shutil.copytree(source, tests, ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    os.symlink(os.path.join(os.path.realpath(source), "..", "..", "..", "models"), os.path.join(folder, "models"))
    unit = os.path.join(tests, "unit")
    os.mkdir(os.path.join(tests, "tmp"))
    for name in os.listdir(unit):
        path = os.path.join(unit, name)
        if name.endswith(".py"):
            with open(path, encoding="utf-8") as f:
                text = f.read()
            for _, short, long in (x for x in LENGTHS if x[0] == name and not PLAIN):
                assert short in text, f"{name}: {short} is not there"
                text = text.replace(short, long)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text if PLAIN else COUNTS.sub(r"\1pass", text))
    launcher = os.path.join(folder, "llama-server")
    with open(launcher, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nexec '{sys.executable}' -S '{os.path.abspath(__file__)}' --launch \"$@\"\n")
    os.chmod(launcher, os.stat(launcher).st_mode | stat.S_IXUSR)
    return tests, launcher


def add_rank_head(model, target):
    """The model with a head of two rows of chance: what it says of a text means nothing, but it says it."""
    sys.path.insert(0, os.path.join(HERE, "support"))
    from gguf_edit import edit, lengths
    r, width = random.Random(1), lengths(model)["token_embd.weight"][0]
    edit(model, target, [], [("cls.output.weight", (width, 2), [r.uniform(-1, 1) for _ in range(2 * width)])])


def make_variants(model, folder):
    """{variable: file}: the model as one that fills in, as one with a token before every text, and with its vocabulary a draft model of chance, whose large
    embeddings make it sure of its guesses: the last token again."""
    import check_serve_native
    from gguf_edit import BOOL, F32, STRING, U32, edit, key, keys_of, strings, write
    files = {"KVANT_" + x: os.path.join(folder, x + ".gguf") for x in ("INFILL_MODEL", "BOS_MODEL", "DRAFT_MODEL")}
    shutil.move(check_serve_native.renamed(model), files["KVANT_INFILL_MODEL"])
    edit(model, files["KVANT_BOS_MODEL"], [key("tokenizer.ggml.add_bos_token", BOOL, True)])
    r, width, words = random.Random(4), 64, len(strings(model, "tokenizer.ggml.tokens"))
    numbers = {"block_count": 1, "context_length": 4096, "embedding_length": width, "feed_forward_length": 32, "attention.head_count": 1}
    keys = [key("general.architecture", STRING, "llama"), *(key("llama." + k, U32, v) for k, v in numbers.items()),
            key("llama.attention.layer_norm_rms_epsilon", F32, 1e-6), *keys_of(model, "tokenizer.")]
    shapes = {"token_embd.weight": (width, words), "output_norm.weight": (width,), **{f"blk.0.{x}_norm.weight": (width,) for x in ("attn", "ffn")},
              **{f"blk.0.attn_{x}.weight": (width, width) for x in ("q", "k", "v", "output")},
              **{f"blk.0.ffn_{x}.weight": s for x, s in (("gate", (width, 32)), ("up", (width, 32)), ("down", (32, width)))}}
    ranges = {"output_norm.weight": (1, 1), "token_embd.weight": (-1, 1)}
    write(files["KVANT_DRAFT_MODEL"], keys, [(name, s, [r.uniform(*ranges.get(name, (-0.1, 0.1))) for _ in range(s[0] * (s + (1,))[1])])
                                             for name, s in shapes.items()])
    return files


def make_adapter(model, target):
    """Of rank 2, of chance too."""
    from gguf_edit import F32, STRING, architecture, key, lengths, write
    r, tensors = random.Random(2), []
    for name, (n_in, n_out, *_) in ((k, v) for k, v in lengths(model).items() if k.endswith(".ffn_down.weight")):
        tensors += [(name + ".lora_a", (n_in, 2), [r.uniform(-0.1, 0.1) for _ in range(2 * n_in)]),
                    (name + ".lora_b", (2, n_out), [r.uniform(-0.1, 0.1) for _ in range(2 * n_out)])]
    write(target, [key("general.type", STRING, "adapter"), key("adapter.type", STRING, "lora"), key("adapter.lora.alpha", F32, 4.0),
                   key("general.architecture", STRING, architecture(model))], tensors)


def make_cache(model, folder):
    """The repositories of a router's presets, each with the model."""
    for name in ROUTED:
        repo = os.path.join(folder, "cache", "hub", "models--" + name.split(":")[0].replace("/", "--"))
        os.makedirs(os.path.join(repo, "refs"))
        os.makedirs(os.path.join(repo, "snapshots", "ab12"))
        with open(os.path.join(repo, "refs", "main"), "w", encoding="utf-8") as f:
            f.write("ab12")
        os.symlink(os.path.abspath(model), os.path.join(repo, "snapshots", "ab12", f"model-{name.split(':')[1]}.gguf"))
    return os.path.join(folder, "cache")


def make_hub(model):
    """The address of a hub with what their routers fetch."""
    sys.path.insert(0, os.path.join(HERE, "support"))
    from hub import Hub, start_hub
    with open(model, "rb") as f:
        Hub.repos = {DOWNLOADED: {"model-F16.gguf": f.read()}}
    preset = "".join(f"[{name}]\nhf-repo = {repo}\n" for name, repo in (("tinygemma3-preset", DOWNLOADED), ("stories260K-test", DOWNLOADED)))
    Hub.repos[REMOTE_PRESET] = {"preset.ini": preset.encode()}
    return start_hub()


def own_cache():
    """A cache of this server alone: tests that run at once fetch and remove the same model."""
    home = os.path.join(tempfile.mkdtemp(dir=os.path.dirname(os.environ["HF_HOME"])), "cache")
    shutil.copytree(os.environ["HF_HOME"], home, symlinks=True)
    os.environ["HF_HOME"] = home


def run(source, build, more):
    """[(file, function, message)] of what failed, and how many tests passed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        tests, launcher = copy_tests(source, folder)
        out = os.path.join(folder, "out.xml")
        env = dict(os.environ, LLAMA_SERVER_BIN_PATH=launcher, KVANT_BIN=os.path.abspath(os.path.join(build, "bin", "kvant")), PYTHONPATH=f"{HERE}:{tests}")
        env["KVANT_MODEL"] = os.environ.get("KVANT_LLAMA_MODEL", MODEL)
        env["KVANT_RANK_MODEL"] = os.path.join(folder, "rank.gguf")
        env["KVANT_ADAPTER"] = os.path.join(folder, "adapter.gguf")
        if not PLAIN:
            env["HF_HOME"] = make_cache(env["KVANT_MODEL"], folder)
            env["HF_ENDPOINT"] = make_hub(env["KVANT_MODEL"])
        env["KVANT_ROUTED"] = os.path.join(folder, "routed.ini")
        with open(env["KVANT_ROUTED"], "w", encoding="utf-8") as f:
            f.write("".join(f"[{name}]\nmodel = {os.path.abspath(env['KVANT_MODEL'])}\n" for name in ROUTED))
        add_rank_head(env["KVANT_MODEL"], env["KVANT_RANK_MODEL"])
        env.update(make_variants(env["KVANT_MODEL"], folder))
        make_adapter(env["KVANT_MODEL"], env["KVANT_ADAPTER"])
        subprocess.run([sys.executable, "-m", "pytest", "-p", "llama_server", "-n", str(os.cpu_count()), "--dist", "worksteal", "-m", "not slow", "-q",
                        "--timeout", "60", f"--junitxml={out}", *(more or ["unit"])], cwd=tests, env=env, check=False, stdout=subprocess.DEVNULL)
        cases = list(ET.parse(out).getroot().iter("testcase"))
    failed, skipped = [], 0
    for c in cases:
        bad = c.find("failure") if c.find("failure") is not None else c.find("error")
        skipped += c.find("skipped") is not None
        if bad is not None:
            failed.append((c.get("classname").split(".")[-1], c.get("name").split("[")[0], (bad.get("message") or "").split("\n")[0][:160]))
    return failed, len(cases) - len(failed) - skipped, skipped


def listed():
    with open(LIST, encoding="utf-8") as f:
        rows = re.findall(r"^\| `(\w+)::(\w+)` \| (\d+) \|", f.read(), re.M)
    return {(file, name): int(n) for file, name, n in rows}


def main(source, build, more):
    failed, passed, skipped = run(source, build, more)
    now, want = collections.Counter((file, name) for file, name, _ in failed), listed()
    files = {os.path.basename(x).split(".")[0] for x in more}
    wrong = [k for k in sorted(now.keys() | want.keys()) if now[k] != want.get(k, 0) and (not files or k[0] in files)]
    for file, name in wrong:
        says = next((m for f, t, m in failed if (f, t) == (file, name)), "")
        print(f"FAIL {file}::{name}: {now[(file, name)]} fail, listed are {want.get((file, name), 0)}: {says}")
    print(f"llama.cpp's server tests: {passed} pass, {len(failed)} fail, {skipped} are skipped")
    print(f"llama_server: {passed}, of the failures {len(failed)} as listed" if not wrong else f"llama_server: {len(wrong)} functions differ from the list")
    return bool(wrong)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        if not PLAIN:
            own_cache()
        os.execv(os.environ["KVANT_BIN"], [os.environ["KVANT_BIN"], "serve"] + mapped(sys.argv[2:]))
    if not os.environ.get("KVANT_LLAMA_TESTS"):
        print("SKIP llama_server: KVANT_LLAMA_TESTS names no folder (tools/server/tests of a llama.cpp tree)")
        sys.exit(0)
    sys.exit(main(os.environ["KVANT_LLAMA_TESTS"], sys.argv[1], sys.argv[2:]))
