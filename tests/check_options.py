#!/usr/bin/env python3
"""check_options: the command line as people who know llama.cpp type it.

Every spelling of POPULAR is given to `kvant serve`: what has no effect is accepted with one note, what acts acts, what would change
an answer is refused with a reason.  Then: hints (B17), -np and -t (B12), schemas (B13), --deterministic (B20), --qjl-projection
(B22), README's divergence (B14), plans on a narrow terminal (B18), the log options, --mlock, --version of every command."""
import os
import re
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support.serve import ROOT, Checks, Server, built, is_sanitized  # noqa: E402

TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
COMMANDS = ["run", "serve", "bench", "bench-serve", "bench-kernels", "eval ppl", "eval kl", "eval needle", "inspect", "plan", "convert", "quantize", "imatrix", "health",
            "verify"]
# N: no effect, one note.  A: acts (read by code).  R: refused, with these words.
# Options that act beside another one alone have a note without it.
POPULAR = [
    ("N", "--jinja"), ("N", "--no-jinja"), ("A", "--mlock"), ("N", "--no-mmap"), ("N", "--mmap"), ("A", "--no-warmup"), ("N", "--warmup"),
    ("A", "--seed 42"), ("A", "-s 42"), ("A", "--ignore-eos"), ("N", "--no-context-shift"), ("A", "--context-shift"),
    ("N", "--embeddings"), ("N", "--embedding"), ("A", "--pooling mean"), ("A", "--pooling last"), ("A", "--pooling cls"), ("R", "--pooling most", "wanted one of none|mean|cls|last|rank"), ("A", "--no-webui"),
    ("A", "--no-ui"), ("N", "--webui"), ("N", "--cache-prompt"), ("A", "--no-cache-prompt"), ("N", "--cache-reuse 256"),
    ("N", "--cache-ram 0"), ("N", "-cram 4096"), ("N", "-ctxcp 8"), ("N", "--no-repack"), ("A", "-fit on"), ("A", "--fit off"), ("R", "--fit maybe", "on|off"), ("R", "--device-memory 1G,2G", "2 sizes for 1 devices"), ("R", "--device-memory much", "wanted sizes"),
    ("N", "-fitt 1024"), ("A", "--log-file LOG"), ("A", "--log-timestamps"), ("N", "--no-log-timestamps"), ("A", "--log-colors off"),
    ("N", "--log-prefix"), ("A", "--no-log-prefix"), ("A", "--log-disable"), ("A", "--log-verbosity 1"), ("A", "-lv 4"), ("A", "-v"),
    ("A", "--verbose"), ("A", "--timeout 600"), ("A", "-to 600"), ("N", "--threads-http 4"), ("N", "--prio 2"), ("N", "--poll 50"),
    ("N", "-tb 2"), ("N", "--threads-batch 2"), ("A", "-t 2"), ("A", "--threads 2"), ("N", "-C ff"), ("N", "--cpu-strict 1"),
    ("N", "--numa distribute"), ("A", "-b 32"), ("A", "--batch-size 4096"), ("A", "-ub 128"), ("A", "--ubatch-size 512"), ("N", "-cb"),
    ("N", "--cont-batching"), ("N", "-nocb"), ("N", "-fa on"), ("N", "-fa off"), ("N", "--flash-attn auto"), ("N", "-dt 0.1"),
    ("N", "--defrag-thold 0.1"), ("N", "--slots"), ("A", "--no-slots"), ("N", "--metrics"), ("N", "--props"), ("N", "--perf"),
    ("N", "--no-perf"), ("A", "--offline"), ("N", "--verbose-prompt"), ("A", "--color off"), ("N", "-kvu"), ("N", "--no-kv-unified"),
    ("N", "-nkvo"), ("N", "--no-kv-offload"), ("A", "--swa-full"), ("A", "--keep 64"), ("R", "--keep -2", "wanted"), ("A", "--keep -1"), ("N", "-sm none"), ("N", "-sm layer"), ("R", "-sm row", "wanted none, layer or tensor"), ("N", "-sm tensor"), ("N", "-ts 1,0"), ("N", "-ts 0/3/0"), ("R", "-ts 1,1", "wanted one share"),
    ("R", "--tensor-split 3,0,1", "as many devices"), ("R", "-ts x", "shares such as"), ("R", "-ts 1e400", "shares such as"), ("R", "-ts 0,0", "one share above 0"), ("R", "-mg 1", "cuda:1"), ("R", "-ot exps=TPU0", "device tpu:0: unknown"),
    ("R", "-ot exps", "PATTERN=DEVICE"), ("R", "-ncmoe x", "wanted"), ("A", "--spec-type none"), ("R", "--spec-synth-len 2", "wanted with guesses"), ("R", "--spec ngram --draft-max 2 --spec-synth-rates 0.5", "found 1 numbers, wanted 2"), ("R", "--spec ngram --draft-max 2 --spec-synth-rates 0.5,0.6", "rate 2: found 0.6, wanted at most 0.5"), ("R", "--spec ngram --draft-max 2 --spec-synth-rates 1,x", "wanted numbers with commas"), ("R", "--spec ngram --draft-max 2 --spec-synth-len 3.5", "wanted 1 to 3"), ("A", "--spec ngram --draft-max 2 --spec-synth-rates 0.5,0.5"), ("R", "--spec-type draft-mtp", "no block that predicts further tokens"),
    ("N", "-mg 0"), ("N", "-ot exps=CPU"), ("N", "--cpu-moe"), ("N", "-ncmoe 4"), ("N", "--no-op-offload"), ("N", "--check-tensors"),
    ("N", "--no-mmproj"), ("R", "--mmproj x.gguf", "text only"), ("A", "--mirostat 0"), ("A", "--mirostat 2"), ("R", "--mirostat 3", "from 0 to 2"),
    ("A", "--dry-multiplier 0.0"), ("A", "--dry-multiplier 0.8"), ("R", "--dry-sequence-breaker x", "dry_sequence_breakers"), ("A", "--typical 1.0"),
    ("A", "--top-nsigma 1.5"), ("A", "--mirostat-ent 4"), ("A", "--dynatemp-range 0.5"), ("N", "--adaptive-target -1"), ("R", "--adaptive-target 0.5", "wanted -1"),
    ("A", "--xtc-probability 0.1"), ("R", "--samplers top_k", "the field samplers"), ("A", "--reasoning-format none"),
    ("A", "--reasoning-format deepseek"), ("A", "--reasoning-budget 0"), ("A", "--tool-dialect hermes"),
    ("A", "-c 256"), ("A", "--ctx-size 256"), ("A", "-n 8"), ("A", "--n-predict 8"), ("A", "-np 2"), ("A", "--parallel 2"), ("A", "-ngl 0"),
    ("A", "--n-gpu-layers auto"), ("R", "-ngl 99 --device cpu", "--device cuda"), ("A", "-dev cpu"), ("A", "-ctk q8_0"), ("A", "--cache-type-v q8_0"),
    ("A", "--host 127.0.0.1"), ("A", "--port 0"), ("A", "-a name"), ("A", "--alias name"), ("A", "--alias a,,b"), ("R", "--alias ,,", "wanted a name of 1 to"), ("A", "--api-key k"),
    ("A", "--slot-save-path DIR"), ("A", "--temp 0.5"), ("A", "--top-k 20"), ("A", "--top-p 0.9"), ("A", "--min-p 0.1"),
    ("A", "--repeat-penalty 1.1"), ("A", "--presence-penalty 0.5"), ("A", "--chat-template chatml"), ("A", "--chat-template {{messages[0].content}}"), ("R", "--chat-template chatml2", "or a template"),
    ("R", "--chat-template-kwargs x", "a field of requests"), ("R", "--grammar x", "a request to kvant serve brings its own"),
    ("R", "--json-schema x", "a request to kvant serve brings its own"), ("R", "-mu a/b", "curl -LO"), ("R", "-md /no/draft.gguf", "no/draft.gguf"), ("N", "--draft-p-min 0.5"), ("N", "-ctkd q8_0"), ("N", "-devd cpu"), ("N", "-md /no/draft.gguf --spec ngram"), ("N", "--draft-min 1 --spec off"),
    ("A", "--draft-min 1 --spec ngram"), ("N", "--slot-save-quota 1M"), ("A", "--slot-save-quota 1M --slot-save-path DIR"), ("N", "--qjl-projection x"), ("A", "--qjl-projection x -ctv qjl1_256"), ("R", "-ngld 9", "-devd NAME"),
    ("N", "--draft-max 8"), ("R", "--control-vector x", "not supported"), ("A", "--lora-init-without-apply"), ("R", "--rope-scaling yarn", "as the file says"),
    ("A", "--override-kv tokenizer.ggml.add_bos_token=bool:true"), ("R", "--override-kv a=int:x", "no integer of 64 bits"),
    ("R", "--override-kv a", "KEY=TYPE:VALUE"), ("R", "--override-kv a=bool:yes", "true or false"), ("R", "--override-kv a=u8:1", "type is unknown"), ("R", "--rerank", "no rank head"), ("R", "--rerank --pooling mean", "wanted one of them"), ("R", "--path x", "part of the program"),
    ("R", "--rpc x", "of this machine alone"), ("A", "--sleep-idle-seconds 60"), ("A", "--sleep-idle-seconds -1"), ("R", "--sleep-idle-seconds 60 --kv-events tcp://127.0.0.1:0", "wanted one of them"), ("N", "-sps 0.5"), ("A", "--api-prefix /x"), ("N", "-e"),
    ("N", "--no-agent"), ("N", "--prefill-assistant"), ("N", "--no-log-jsonl"), ("R", "--agent", "tool_calls"), ("R", "-l 5+1", "logit_bias"),
    ("N", "--spec-draft-n-max 4"), ("R", "-cmoed", "not supported yet"), ("R", "--fim-qwen-1.5b-default", "-hf USER/NAME fetches one"),
    ("R", "--skip-chat-parsing", "reasoning_format"), ("R", "--webui-config x", "in the browser"),
    ("R", "--ssl-key-file x", "proxy"), ("R", "--models-dir x", "wanted one of them"), ("A", "--models-max 2"), ("R", "--models-preset x", "wanted one of them"),
]


def run(build, *words, **more):
    return subprocess.run([os.path.join(build, "bin", "kvant"), *words], capture_output=True, text=True, errors="replace", timeout=300,
                          stdin=subprocess.DEVNULL, check=False, **more)


def serve_missing(build, *words):
    """Options are read and checked, then the model is not there: exit code 3."""
    return run(build, "serve", "-m", "/no/such.gguf", "--port", "0", *words)


def check_popular(c, build, folder):
    for kind, text, *want in POPULAR[::6 if is_sanitized(build) else 1]:       # a start of an instrumented program takes its time
        words = [{"LOG": folder + "/log", "DIR": folder}.get(w, w) for w in text.split()]
        if kind == "R":
            r = run(build, "serve", "-m", TINY, "--port", "0", *words)
            c.ok(r.returncode in (2, 3, 5) and want[0] in r.stderr and "did you mean" not in r.stderr, f"serve {text}: {r.stderr}")
            continue
        r = serve_missing(build, *words)
        notes = [line for line in r.stderr.splitlines() if ": no effect: " in line]
        c.ok(r.returncode == 3, f"serve {text}: exit code {r.returncode}; {r.stderr}")
        c.ok(len(notes) == (kind == "N"), f"serve {text}: notes {notes}")
    r = serve_missing(build, "--mmap", "--jinja", "--no-mmap", "-lv", "1")
    c.ok("no effect" not in r.stderr, f"-lv 1 shows notes: {r.stderr}")
    r = serve_missing(build, "--mmap", "--jinja", "--no-mmap")
    c.ok(r.stderr.count("no effect") == 2 and "--mmap, --no-mmap: no effect" in r.stderr, f"one note for a row: {r.stderr}")


def check_hints(c, build):
    """B17: a hint is close to what was typed, and is taken by this command."""
    for command, given, hint in (("run", "--ctx-sise", "--ctx-size"), ("run", "-ckt", "-ctk"), ("serve", "--mmapp", "--mmap"),
                                 ("serve", "--log-colours", "--log-colors"), ("serve", "--no-slot", "--no-slots")):
        r = run(build, command, given)
        c.ok(r.returncode == 2 and f"did you mean {hint}?" in r.stderr, f"{command} {given}: {r.stderr}")
    refused = run(build, "--options-md").stdout.split("## Refused")[1]
    for given in ("--mmxx", "--versio", "--log-collar", "--x", "-x", "-qq", "--loraa", "--grammer", "--json-schemo", "--hf-rep", "--chat-template-fil",
                  "--rpcc"):
        r = run(build, "serve", given)
        hint = re.search(r"did you mean (\S+)\?", r.stderr)
        c.ok(r.returncode == 2 and not (hint and f"`{hint[1]}`" in refused), f"{given}: {r.stderr}")
        if hint:
            c.ok(hint[1][:4] == given[:4], f"{given}: {r.stderr}")
            again = run(build, "serve", hint[1])
            c.ok("unknown option" not in again.stderr and "not an option" not in again.stderr, f"{given} -> {hint[1]}: {again.stderr}")
    for command, given in (("bench", "--no-context-shift"), ("plan", "--jinja"), ("verify", "--mmap")):
        r = run(build, command, given)
        c.ok("but of kvant" not in r.stderr and r.returncode == 2, f"{command} {given}: {r.stderr}")


def check_numbers(c, build):
    """B12: -np 0 is no number of sequences; threads beyond the CPUs are not started."""
    r = serve_missing(build, "-np", "0")
    c.ok(r.returncode == 2 and "-np: found 0, wanted 1 or more" in r.stderr, r.stderr)
    cpus = len(os.sched_getaffinity(0))
    r = run(build, "run", "-m", TINY, "-p", "a b c", "-n", "2", "-t", "64" if cpus < 64 else "60000")
    used = re.search(r": (\d+) threads are used", r.stderr)
    shown = re.search(r", (\d+) threads", r.stderr.split("model: ")[-1])
    c.ok(r.returncode == 0 and used and shown and used[1] == shown[1] and int(used[1]) <= cpus, r.stderr)
    r = run(build, "run", "-m", TINY, "-p", "a b c", "-n", "2", "-t", "1")
    c.ok("threads are used" not in r.stderr, r.stderr)
    r = run(build, "bench", "-m", TINY, "-p", "16", "-n", "0", "-r", "1", "-t", str(cpus + 1))
    c.ok(r.returncode == 0 and "wait for each other" in r.stderr, r.stderr)


def check_versions(c, build):
    want = run(build, "--version").stdout
    for command in COMMANDS + ["eval"]:
        r = run(build, *command.split(), "--version")
        c.ok(r.returncode == 0 and r.stdout == want, f"{command} --version: {r.stdout} {r.stderr}")
        r = run(build, *command.split(), "--help")
        c.ok(r.returncode == 0 and "Usage: kvant" in r.stdout, f"{command} --help: {r.stdout[:80]} {r.stderr}")


def check_log(c, build, folder):
    path = os.path.join(folder, "log.txt")
    for _ in range(2):
        r = run(build, "run", "-m", TINY, "-p", "a", "-n", "1", "--log-file", path, "--log-timestamps", "--color", "on")
        c.ok(r.returncode == 0, r.stderr)
    text = open(path, encoding="utf-8").read()
    c.ok(text.count("decode: ") == 2 and "\x1b" not in text, f"--log-file: {text}")
    c.ok(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z kvant: ", line) for line in text.splitlines()), f"--log-timestamps: {text}")
    r = run(build, "run", "-m", "/no/such", "--log-file", path, "--no-log-prefix")
    c.ok(r.returncode == 3 and "kvant:" not in r.stderr and r.stderr.strip() in open(path, encoding="utf-8").read(), f"error: {r.stderr}")
    r = run(build, "run", "-m", TINY, "-p", "a", "--log-file", "/no/such/dir/log")
    c.ok(r.returncode == 1 and "/no/such/dir/log cannot be written" in r.stderr, r.stderr)
    r = run(build, "run", "-m", "/no/such", "--log-colors", "on")
    c.ok("\x1b[31m" in r.stderr, f"--log-colors on: {r.stderr}")
    r = run(build, "run", "-m", "/no/such", "--color", "on", "--log-colors", "off")
    c.ok("\x1b" not in r.stderr, f"--log-colors off: {r.stderr}")
    r = run(build, "run", "-m", TINY, "-p", "a", "-n", "1", "--no-perf")
    c.ok("decode: " not in r.stderr and "model: " in r.stderr, f"--no-perf: {r.stderr}")


def locked_kib(pid):
    return int(re.search(r"VmLck:\s+(\d+)", open(f"/proc/{pid}/status", encoding="utf-8").read())[1])


def check_mlock(c, build):
    """The memory is locked, or the warning says why it is not."""
    with_lock, without = Server(build, "--mlock", model=TINY), Server(build, model=TINY)
    said = "\n".join(with_lock.lines)
    if "memory is not locked" in said:
        c.ok("ulimit -l" in said and locked_kib(with_lock.process.pid) == 0, said)
    else:
        really = not is_sanitized(build)       # the sanitizers turn mlockall into a success that does nothing
        c.ok("stays in memory" in said and (not really or locked_kib(with_lock.process.pid) > 1000), f"{said}: {locked_kib(with_lock.process.pid)} KiB")
    c.ok(locked_kib(without.process.pid) == 0, "locked without --mlock")
    with_lock.stop()
    without.stop()
    if os.geteuid() != 0:       # a limit does not bind root
        r = run(build, "run", "-m", TINY, "-p", "a", "-n", "1", "--mlock", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
        c.ok(r.returncode == 0 and "memory is not locked" in r.stderr, r.stderr)


def check_server(c, build, folder):
    """Defaults that requests take from the command line; --no-webui; B20; B22."""
    body = {"prompt": "a b c", "max_tokens": 12, "temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0}
    answer = lambda s, **more: s.post("/v1/completions", dict(body, **more))[1]["choices"][0]["text"]
    s = Server(build, "--seed", "7", "--no-webui", "--timeout", "99", "-b", "32", "-np", "4", model=TINY)
    c.ok(answer(s) == answer(s) == answer(s, seed=7), "--seed: two requests differ")
    c.ok(len({answer(s, seed=-1) for _ in range(4)}) > 1, "seed -1 of a request: not random")
    c.ok(s.request("GET", "/")[0] == 404 and s.request("GET", "/app.js")[0] == 404 and s.request("GET", "/health")[0] == 200, "--no-webui: the page answers")
    c.ok(any("-b 32: raised to 68" in line for line in s.lines), f"-b 32: {s.lines}")
    s.stop()
    s = Server(build, "--deterministic", model=TINY)
    c.ok(s.request("GET", "/")[0] == 200 and len({answer(s) for _ in range(4)}) > 1, "without --seed: not random")
    s.stop()
    r = serve_missing(build, "--deterministic", "--device", "vulkan")
    c.ok(r.returncode == 2 and "wanted cpu" in r.stderr, f"B20: {r.stderr}")
    bad = os.path.join(folder, "short.f32")
    open(bad, "wb").write(b"\0" * 64)
    r = run(build, "serve", "-m", TINY, "--port", "0", "-ctk", "qjl1_256", "--qjl-projection", bad)
    c.ok(r.returncode != 0 and "short.f32" in r.stderr and "not an option" not in r.stderr, f"B22: {r.stderr}")


def check_readme(c, build):
    """B14: README's divergence names the instruction sets it was seen with, and this machine's is among or next to them."""
    page = open(os.path.join(ROOT, "README.md"), encoding="utf-8").read()
    row = re.search(r"^\| tbq3_0 \|.*", page, re.M)[0]
    said = [float(x) for x in re.findall(r"(0\.\d+) \(AVX", row)]
    r = run(build, "eval", "kl", "-m", os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf"), "-f", os.path.join(ROOT, "models", "demo-filler.txt"),
            "-c", "1024", "--pairs", "tbq3_0", "--json")
    mean = float(re.search(r'"mean":([\d.e-]+)', r.stdout)[1])
    c.ok(len(said) >= 2 and min(said) * 0.98 <= mean <= max(said) * 1.02, f"README: {row}; here {mean}; {r.stderr[-200:]}")


def check_memory(c, build):
    """KVANT_MEMORY that is no size, and KVANT_CPU that is no rung, end the program: it would go on as if they were not there."""
    for value in ("junk", "0", "-3", "6Q"):
        r = run(build, "plan", "-m", TINY, env=dict(os.environ, KVANT_MEMORY=value))
        c.ok(r.returncode == 2 and f'KVANT_MEMORY: found "{value}", wanted a size such as 6G' in r.stderr, f"{value}: {r.returncode} {r.stderr}")
    for value, code in (("avx512bf16", 2), ("AVX2", 2), ("avx2", 0), ("", 0)):
        r = run(build, "plan", "-m", TINY, env=dict(os.environ, KVANT_CPU=value))
        told = f'KVANT_CPU: found "{value}", wanted one of ref, avx2, avx512' in r.stderr
        c.ok(r.returncode == code and told == (code == 2), f"KVANT_CPU={value}: {r.returncode} {r.stderr}")


def check_plan(c, build):
    """B18: no line of a plan is wrapped by a terminal of 80 columns, and every row has every column."""
    for args in ([], ["--memory", "64M"], ["-np", "64", "-c", "16777216", "--memory", "512G"], ["--pairs", "f16:tbq4_0,q8_0:f16"]):
        r = run(build, "plan", "-m", TINY, *args)
        lines = r.stdout.splitlines()
        c.ok(r.returncode == 0 and max(map(len, lines)) <= 80, f"plan {args}: {max(map(len, lines))} columns: {r.stderr}")
        table = lines[lines.index("") + 1:]
        c.ok(table[0].startswith("cache K:V") and len(table) > 1, f"plan {args}: {table[:2]}")
        c.ok(all(re.fullmatch(r"\S+ +\d+( +[\d.]+ [KMGT]?i?B){3} +(yes|no) +\d+ +\d+\+?", row) for row in table[1:]), f"plan {args}: {table}")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
    c = Checks("check_options")
    with tempfile.TemporaryDirectory() as folder:
        check_hints(c, build)
        check_numbers(c, build)
        check_versions(c, build)
        check_memory(c, build)
        check_plan(c, build)
        check_log(c, build, folder)
        if not is_sanitized(build):        # minutes, and the kernels are checked elsewhere
            check_readme(c, build)
        if built(build):
            check_popular(c, build, folder)
            check_server(c, build, folder)
            check_mlock(c, build)
    return c.end()


if __name__ == "__main__":
    sys.exit(main())
