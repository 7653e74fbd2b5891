"""suites.py: which suites must run whole.  A suite is what checks a device that the CPU plays (Vulkan by lavapipe, Metal's shim, OpenCL
by pocl), a build for another machine (CUDA, arm64) or of another tree (additions: a made-up format and weight type), or the CPU's kernels
once more (cpu: sanitized, and on a lower rung): minutes that tell nothing new while its inputs are those of a run of all its
cases.  The inputs are hashed; a hash that tests/whole_runs.txt (the ledger) has is `known`, and then a smoke case and an eighth of the
cases run, in turn by the commit.  Any other hash: all cases.

    suites.py [SUITE ...]               a line each: whole or known, and the inputs' hash
    suites.py whole SUITE               exit status 0 when all cases must run
    suites.py some SUITE < names        the names of this run: all, or the first and an eighth
    suites.py inputs SUITE              the files; digest SUITE: their hash
    suites.py record SUITE PASSED HOW   a run of all cases passed: the ledger's line, for the files as they are now
    suites.py check                     what the lint refuses: lines that are no lines, unknown suites, older than 30 days"""
import datetime
import fnmatch
import hashlib
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LEDGER = "tests/whole_runs.txt"
MAX_DAYS = 30

# Patterns of paths, `*` for anything.  Headers that a device's sources include are inputs as well, whatever folder they are in.
GENERATED = ["tools/gen_tables", "tools/cards/*", "cmake/cards.cmake", "src/formats/*.toml", "src/formats/*.def", "tools/gen_ops", "tools/ops/*",
             "cmake/ops.cmake", "src/ops/cards/*"]
REFERENCES = ["src/formats/*", "src/ops/*", "src/verify/*", *GENERATED]
HOW = ["tests/support/suites.py", "tests/support/chosen.py", "models/*"]
GRAPH = ["src/model/archs/*", "src/model/archs.def", "src/model/blocks/*", "src/model/build.*", "src/model/lora.*", "src/model/weights.c",
         "src/model/rope_scaling.c", "src/engine/step.c", "src/engine/session_step.c", "src/engine/load.c", "src/engine/place/*", "src/engine/engine_lora.c",
         "src/cache/kv*", "src/cache/page_pool.*", "tests/golden/tiny/*", "tests/archs/*", "tests/lora/*"]
PORTABLE = ["src/devices/portable/*", "src/devices/portable.h", "tools/embed_kernels", "cmake/portable.cmake"]
# Tests of the CPU's kernels that run again, sanitized and on a lower rung; their plain runs always have all cases.
CPU_AGAIN = ["check_attn", "check_ops", "check_kernels", "check_variants", "check_matmul", "check_formats", "check_gdn", "check_quantize",
             "check_weights", "check_mse", "check_qjl"]
DEVICES = {                 # sources of the devices; check_suites holds them against the tree
    "vulkan": ["src/devices/vulkan/*", "cmake/vulkan.cmake", "tools/spirv_khr.py"],
    "metal": [*PORTABLE, "src/devices/metal/*", "cmake/shim.cmake", "cmake/bytes.cmake", "tools/check_msl"],
    "opencl": [*PORTABLE, "src/devices/opencl/*"],
    "hip": [*PORTABLE, "src/devices/hip/*"],
    "cuda": ["src/devices/cuda/*", "cmake/cuda.cmake"],
    "cpu": ["src/devices/cpu/*"],
    "arm64": ["src/devices/cpu/*", "cmake/arm64.cmake", "cmake/isa.cmake", "tools/check_neon.sh", "tools/arm64_sysroot.sh", "tools/check_isa.py"],
}
SUITES = {
    "vulkan": [*DEVICES["vulkan"], *REFERENCES, *HOW, "tests/check_vulkan.py"],
    "vulkan-models": [*DEVICES["vulkan"], *REFERENCES, *HOW, *GRAPH, "tests/check_vulkan.py", "tests/check_archs.c", "tests/check_windows.c",
                      "tests/check_lora.c", "tests/check_golden.c"],
    "metal": [*DEVICES["metal"], *REFERENCES, *HOW, "tests/check_metal.py", "tests/metal/*"],
    "metal-models": [*DEVICES["metal"], *REFERENCES, *HOW, *GRAPH, "tests/check_metal.py"],
    "opencl": [*DEVICES["opencl"], *REFERENCES, *HOW, "tests/check_opencl.py"],
    "opencl-models": [*DEVICES["opencl"], *REFERENCES, *HOW, *GRAPH, "tests/check_opencl.py", "tests/check_golden.c"],
    "hip": [*DEVICES["hip"], *REFERENCES, *HOW, "tests/check_hip.py", "tests/hip/hip_check.c"],
    "cuda": [*DEVICES["cuda"], *GENERATED, *HOW],
    "cpu": [*DEVICES["cpu"], *REFERENCES, *HOW, "src/base/cpu.*", "cmake/isa.cmake", "CMakeLists.txt", "CMakePresets.json", "tests/support/plan.py",
            "tests/cpu_tests.txt", *(f"tests/{name}.c" for name in CPU_AGAIN)],
    "additions": ["src/devices/*", *REFERENCES, *HOW, "cmake/*", "CMakeLists.txt", "tests/check_add_*.py"],
    "arm64": [*DEVICES["arm64"], *REFERENCES, *HOW, "src/base/cpu.*", "tests/check_kernels.c"],
}


def git(root, *args):
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False).stdout


def files(root):
    """Tracked files, and those that a build would find though nobody has added them; none outside a repository."""
    listed = git(root, "ls-files", "-z", "-c", "-o", "--exclude-standard").split("\0")
    return sorted({name for name in listed if name and os.path.isfile(os.path.join(root, name))})


def read(root, path):
    with open(os.path.join(root, path), "rb") as f:
        return f.read()


def included(root, path, known):
    for name in re.findall(rb'^\s*#\s*include\s+"([^"]+)"', read(root, path), re.M):
        name = name.decode()
        for place in (os.path.normpath(os.path.join(os.path.dirname(path), name)), f"src/{name}", f"include/{name}"):
            if place in known:
                yield place


def matching(names, patterns):
    return {name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns)}


def inputs(suite, root=ROOT, names=None):
    known = set(names if names is not None else files(root))
    found = matching(known, SUITES[suite])
    todo = list(matching(found, DEVICES.get(suite.split("-")[0], [])))
    while todo:
        for path in included(root, todo.pop(), known):
            if path not in found:
                found.add(path)
                todo.append(path)
    return sorted(found)


def digest(suite, root=ROOT, names=None):
    h = hashlib.sha256()
    for path in inputs(suite, root, names):
        h.update(f"{path}\0{hashlib.sha256(read(root, path)).hexdigest()}\n".encode())
    return h.hexdigest()[:24]


def ledger(root=ROOT):
    """suite: (hash, date, commit, passed, how)"""
    path = os.path.join(root, LEDGER)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        lines = [line.split(None, 5) for line in f if line.strip() and not line.startswith("#")]
    return {fields[0]: tuple(fields[1:]) for fields in lines if len(fields) == 6}


def whole(suite, root=ROOT):
    """KVANT_WHOLE: the run that the ledger will tell of."""
    if os.environ.get("KVANT_WHOLE") or os.environ.get("KVANT_LONG"):
        return True
    return ledger(root).get(suite, ("",))[0] != digest(suite, root)


def turn(below):
    """By the commit: its number where the history is here, so that eight commits in a row run everything."""
    count = git(ROOT, "rev-list", "--count", "HEAD").strip()
    if git(ROOT, "rev-parse", "--is-shallow-repository").strip() == "false" and count.isdigit():
        return int(count) % below
    return int(hashlib.sha256(git(ROOT, "rev-parse", "HEAD").strip().encode()).hexdigest(), 16) % below


def part(names, smoke=1, share=8):
    """The smoke cases and an eighth of the others; at least one of them."""
    names = list(names)
    rest = names[smoke:]
    return names[:smoke] + (rest[turn(min(share, len(rest)))::share] if rest else [])


def check(root=ROOT):
    """What is wrong with the ledger.  Its age counts to the last commit's date: a commit that passed goes on to pass."""
    path = os.path.join(root, LEDGER)
    found, seen = [], set()
    last = git(root, "log", "-1", "--format=%cs").strip()
    today = datetime.date.fromisoformat(last) if last else datetime.date.today()
    with open(path, encoding="utf-8") as f:
        for i, line in enumerate(f, 1):
            fields = line.split(None, 5)
            if not fields or line.startswith("#"):
                continue
            try:
                suite, hashed, day, _, passed, _ = fields
                old = (today - datetime.date.fromisoformat(day)).days
                if not re.fullmatch(r"[0-9a-f]{24}", hashed) or int(passed) < 1:
                    raise ValueError(line)
            except ValueError:
                found.append(f"{LEDGER}:{i}: ledger: {line.strip()!r} found, wanted: suite hash date commit passed machine")
                continue
            if suite not in SUITES or suite in seen:
                found.append(f"{LEDGER}:{i}: ledger: suite {suite} is {'there twice' if suite in seen else 'unknown'}; known: {' '.join(SUITES)}")
            elif old > MAX_DAYS:
                found.append(f"{LEDGER}:{i}: ledger: the whole run of {suite} is {old} days older than the last commit, at most {MAX_DAYS}: ./dev renew {suite}")
            seen.add(suite)
    return found


def record(suite, passed, how, root=ROOT):
    path = os.path.join(root, LEDGER)
    with open(path, encoding="utf-8") as f:
        lines = [line for line in f if line.split(None, 1)[:1] != [suite]]
    commit = git(root, "rev-parse", "--short=12", "HEAD").strip()
    lines.append(f"{suite:<14} {digest(suite, root)} {datetime.date.today()} {commit} {int(passed)} {how}\n")
    head = [line for line in lines if line.startswith("#")]
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(head + sorted(line for line in lines if not line.startswith("#")))


def main(args):
    command = args[0] if args else ""
    if command == "whole":
        return not whole(args[1])
    if command == "some":
        names = sys.stdin.read().split()
        print("\n".join(names if whole(args[1]) else part(names)))
    elif command == "digest":
        print(digest(args[1]))
    elif command == "inputs":
        print("\n".join(inputs(args[1])))
    elif command == "record":
        record(args[1], args[2], " ".join(args[3:]))
    elif command == "check":
        found = check()
        print("".join(line + "\n" for line in found), end="")
        return bool(found)
    else:
        for suite in args or SUITES:
            print(f"{suite:<14} {digest(suite)} {'whole' if whole(suite) else 'known'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
