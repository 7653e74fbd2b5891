#!/usr/bin/env python3
"""check_python: the wheel of python/, made of this build, in a fresh virtual environment: its size and content, its own tests
(python/tests), the examples as the documentation shows them, mypy --strict, and the console command.  NumPy comes from the package
index: without one, SKIP.  What needs torch and transformers runs with the interpreter KVANT_TORCH_PYTHON, or this one where it has
them, else SKIP."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, is_sanitized      # noqa: E402

C = Checks("check_python")
PYTHON = os.path.join(ROOT, "python")
MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
MOST = 15 << 20         # bytes of a wheel without CUDA


def run(*command, env=None, cwd=None, wait=600):
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}, cwd=cwd, timeout=wait)


def made_wheel(build, folder):
    code = "import sys; sys.path.insert(0, sys.argv[1]); import kvant_build; print(kvant_build.build_wheel(sys.argv[2]))"
    r = run(sys.executable, "-B", "-c", code, PYTHON, folder, env={"KVANT_BUILD": build})
    C.ok(r.returncode == 0, f"the backend: {r.stderr[-500:]}")
    wheels = glob.glob(os.path.join(folder, "*.whl"))
    return wheels[0] if wheels else None


def check_wheel(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
    cuda = any("libkvant-cuda" in n for n in names)
    C.ok(cuda or os.path.getsize(wheel) <= MOST, f"{os.path.getsize(wheel)} bytes, at most {MOST}")
    wanted = ("kvant/py.typed", "kvant/_abi.py", "kvant/native/bin/kvant", "kvant/native/lib/libkvant.so")
    C.ok(all(any(n.startswith(w) for n in names) for w in wanted), f"not all of {wanted} in {names}")
    C.ok(not any(n.endswith((".a", ".h", ".pyc")) for n in names), "headers, archives or caches in the wheel")
    with zipfile.ZipFile(wheel) as z:
        entries = z.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    C.ok("[vllm.general_plugins]\nkvant = kvant.vllm:register\n" in entries and "kvant/vllm.py" in names, f"no plugin for vLLM: {entries}")


def environment(folder, wheel):
    """The Python of a fresh environment with the wheel in it, or None: no index."""
    python = os.path.join(folder, "bin", "python")
    r = run(sys.executable, "-m", "venv", folder)
    if r.returncode != 0:
        print("SKIP check_python: no venv module here")
        return None
    r = run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", wheel)
    if r.returncode != 0:
        print(f"SKIP check_python: pip cannot install numpy: {r.stderr.strip()[-120:]}")
        return None
    return python


def check_torch_types(python, unpacked):
    """kvant.torch_ops: its types are torch's, so mypy reads that interpreter's packages."""
    torch = os.environ.get("KVANT_TORCH_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as empty:
        modules = ["-m", "kvant.torch_ops", "-m", "kvant._tensors", "-m", "kvant.vllm"]
        r = run(python, "-m", "mypy", "--strict", "--python-executable", torch, *modules, cwd=empty, env={"MYPYPATH": unpacked})
        C.ok(r.returncode == 0, f"mypy --strict {modules}: {r.stdout[-800:]}")
        r = run(python, "-m", "mypy", "--strict", "--ignore-missing-imports", "--allow-subclassing-any", "--python-executable", torch, "-m", "kvant.vllm_backend",
                cwd=empty, env={"MYPYPATH": unpacked})      # without vLLM its classes are Any
        C.ok(r.returncode == 0, f"mypy --strict kvant.vllm_backend: {r.stdout[-800:]}")


def check_dynamo(python, folder):
    """kvant.dynamo against the recorded interface, over a server of its own, and its types."""
    if run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "aiohttp").returncode != 0:
        print("SKIP check_python: pip cannot install aiohttp")
        return
    r = run(python, "-B", os.path.join(PYTHON, "tests", "try_dynamo.py"), ROOT, cwd=folder)
    C.ok(r.returncode == 0, f"try_dynamo: {r.stdout[-800:]} {r.stderr[-800:]}")
    r = run(python, "-m", "mypy", "--strict", "--ignore-missing-imports", "--allow-subclassing-any", "-m", "kvant.dynamo", cwd=folder)
    C.ok(r.returncode == 0 or "No module named mypy" in r.stderr, f"mypy --strict kvant.dynamo: {r.stdout[-800:]}")


def check_types(python):
    if run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "mypy").returncode != 0:
        print("SKIP check_python: pip cannot install mypy")
        return
    modules = [m for m in ("kvant", "kvant.formats", "kvant.ops", "kvant.engine", "kvant.server", "kvant.__main__", "kvant._c", "kvant._abi")]
    with tempfile.TemporaryDirectory() as empty:
        arguments = [a for m in modules for a in ("-m", m)]
        r = run(python, "-m", "mypy", "--strict", *arguments, cwd=empty)
        C.ok(r.returncode == 0, f"mypy --strict: {r.stdout[-800:]}")
        with open(os.path.join(empty, "planted.py"), "w", encoding="utf-8") as f:
            f.write("import kvant\nrows: int = kvant.formats.get(3).encode('x', encoder='none')\n")
        r = run(python, "-m", "mypy", "--strict", "planted.py", cwd=empty)
        C.ok(r.stdout.count("error:") == 3, f"planted: three wrong types: {r.stdout[-400:]}")


def check_examples(python, folder):
    for name, arguments, wanted in (("rows", [], r"tbq4_0 +4\.50 +0\.0\d+"), ("attention", [], r"tbq4_0/tbq4_0: 147456 bytes, relative error 0\.1"),
                                    ("generate", [MODEL, "Once upon a time"], r"embedding: \(384,\)")):
        r = run(python, os.path.join(PYTHON, "examples", name + ".py"), *arguments, cwd=folder)
        C.ok(r.returncode == 0 and re.search(wanted, r.stdout), f"{name}.py: {r.stdout[-300:]} {r.stderr[-300:]}")


def check_torch(folder, wheel):
    python = os.environ.get("KVANT_TORCH_PYTHON", sys.executable)
    if run(python, "-c", "import torch, gguf, transformers; assert int(transformers.__version__.split('.')[0]) >= 5").returncode != 0:
        print(f"SKIP check_python: KvantCache: {python} has no torch, transformers 5 and gguf (KVANT_TORCH_PYTHON names one)")
        return None
    unpacked = os.path.join(folder, "unpacked")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(unpacked)
    for name in ("try_transformers", "try_torch"):
        r = run(python, os.path.join(PYTHON, "tests", name + ".py"), ROOT, env={"PYTHONPATH": unpacked, "CUDA_VISIBLE_DEVICES": ""}, cwd=folder)
        C.ok(r.returncode == 0, f"{name}: {r.stdout[-600:]} {r.stderr[-600:]}")
    r = run(python, os.path.join(PYTHON, "tests", "try_vllm.py"), os.path.join(PYTHON, "tests", "interfaces"),
            env={"PYTHONPATH": unpacked, "CUDA_VISIBLE_DEVICES": ""}, cwd=folder)
    C.ok(r.returncode == 0, f"try_vllm: {r.stdout[-600:]} {r.stderr[-600:]}")
    check_cuda(python, folder, unpacked)
    return unpacked


def check_cuda(python, folder, unpacked):
    """The ops on tensors of a GPU, where there is one and the wheel has its library."""
    if not glob.glob(os.path.join(unpacked, "kvant", "native", "lib", "libkvant-cuda.so")) or \
            run(python, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())").returncode != 0:
        print("SKIP check_python: ops on CUDA tensors: no GPU for torch, or no libkvant-cuda.so in the wheel")
        return
    r = run(python, os.path.join(PYTHON, "tests", "try_torch.py"), "cuda", env={"PYTHONPATH": unpacked}, cwd=folder)
    C.ok(r.returncode == 0, f"try_torch cuda: {r.stdout[-600:]} {r.stderr[-600:]}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    if is_sanitized(build):
        print("SKIP check_python: a sanitizer's library does not load into a program without it")
        return C.end()
    with tempfile.TemporaryDirectory() as folder:
        wheel = made_wheel(build, folder)
        if wheel:
            check_wheel(wheel)
            unpacked = check_torch(folder, wheel)
            python = environment(os.path.join(folder, "venv"), wheel)
            if python:
                r = run(python, os.path.join(PYTHON, "tests", "try_package.py"), ROOT, cwd=folder)
                C.ok(r.returncode == 0, f"try_package: {r.stdout[-800:]} {r.stderr[-800:]}")
                r = run(os.path.join(os.path.dirname(python), "kvant"), "--version", cwd=folder)
                C.ok(r.stdout.startswith("kvant 0."), f"the command: {r.stdout} {r.stderr[-300:]}")
                check_examples(python, folder)
                check_types(python)
                check_dynamo(python, folder)
                if unpacked:
                    check_torch_types(python, unpacked)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
