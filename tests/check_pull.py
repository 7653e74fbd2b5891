#!/usr/bin/env python3
"""check_pull: kvant pull and -hf against a server of this test that speaks the hub's paths: the list of files, redirects, ranges, connections
that break, wrong bytes, tokens; the cache's layout, choosing a file, shards, offline.  Nothing leaves this machine."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from hub import COMMIT, FILES, MODEL, NOISE, Hub, start_hub    # noqa: E402
from serve import ROOT, Checks    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
KVANT = os.path.join(BUILD, "bin", "kvant")
C = Checks("check_pull")
def kvant(home, *args, **env):
    r = subprocess.run([KVANT, *args], capture_output=True, text=True, timeout=120, check=False,
                       env={**{k: v for k, v in os.environ.items() if not k.startswith("HF_")}, "HF_HOME": home, "HF_ENDPOINT": URL, **env})
    return r.returncode, r.stdout.strip(), r.stderr


def holds(path, data):
    try:
        with open(path, "rb") as f:
            return f.read() == data
    except OSError:
        return False


def check_choice(home):
    rc, path, err = kvant(home, "pull", "u/m")
    cache = os.path.join(home, "hub", "models--u--m")
    C.ok(rc == 0 and path == os.path.join(cache, "snapshots", COMMIT, "m-Q4_K_M.gguf") and holds(path, MODEL), (rc, path, err))
    C.ok(os.path.islink(path) and os.readlink(path) == "../../blobs/" + hashlib.sha256(MODEL).hexdigest(), "a link to its bytes")
    C.ok(holds(os.path.join(cache, "refs", "main"), COMMIT.encode()) and not [f for f in os.listdir(os.path.join(cache, "blobs")) if "incomplete" in f], "the ref")
    n = len(Hub.log)
    C.ok(kvant(home, "pull", "u/m:q4_k_m")[:2] == (0, path) and len(Hub.log) == n + 1, "what is there is not fetched again")
    for ask, name in ((("u/m:Q8_0",), "m-Q8_0.gguf"), (("u/m:IQ4_K",), "m-IQ4_K.gguf"), (("u/m:Q5_K",), "my m 100%#1?-Q5_K.gguf"), (("u/m", "-hff", "mmproj-m-F16.gguf"), "mmproj-m-F16.gguf")):
        rc, path, err = kvant(home, "pull", *ask)
        C.ok(rc == 0 and path.endswith("/" + name) and holds(path, FILES[name]), (ask, rc, path, err))
    rc, path, err = kvant(home, "pull", "-hf", "u/m:BF16")
    C.ok(rc == 0 and all(holds(path.replace("00001-of", f"0000{i}-of"), NOISE[6 + i:]) for i in (1, 2)), (rc, path, err))
    for ask, word in ((("u/m:Q2_K",), "m-Q8_0.gguf"), (("u/m", "-hff", "../evil-Q2_K.gguf"), "wanted a path"), (("u/m:Q9",), "wanted one of"),
                      (("um",), "USER/NAME"), (("u/../m",), "USER/NAME"), (("u/m:",), "USER/NAME"), (("u/none",), "404"), (("u/broken",), "commit")):
        rc, out, err = kvant(home, "pull", *ask)
        C.ok(rc not in (0, -11, -6) and word in err and not out, (ask, rc, err))


def check_resume(home):
    Hub.cut = 2
    rc, path, err = kvant(home, "pull", "u/m:Q8_0")
    ranges = [r for p, r, _ in Hub.log if p.startswith("/cdn/u/m/m-Q8_0")][-3:]
    C.ok(rc == 0 and holds(path, NOISE) and ranges == [None, "bytes=1000-", "bytes=2000-"], (rc, ranges, err))
    Hub.cut = 100
    rc, _, err = kvant(home, "pull", "u/m:IQ4_K")
    C.ok(rc != 0 and os.path.getsize(os.path.join(home, "hub", "models--u--m", "blobs", hashlib.sha256(NOISE[5:]).hexdigest() + ".incomplete")) == 5000,
         (rc, err))
    Hub.cut = 0
    rc, path, err = kvant(home, "pull", "u/m:IQ4_K")
    C.ok(rc == 0 and holds(path, NOISE[5:]) and Hub.log[-1][1] == "bytes=5000-" and "goes on at byte 5000" in err, (rc, Hub.log[-1], err))
    Hub.wrong = {"m-Q4_K_M.gguf"}
    rc, _, err = kvant(home, "pull", "u/m")
    C.ok(rc != 0 and "SHA-256" in err and not os.path.exists(os.path.join(home, "hub", "models--u--m", "snapshots", COMMIT, "m-Q4_K_M.gguf")), (rc, err))
    Hub.wrong = set()
    C.ok(kvant(home, "pull", "u/m")[0] == 0, "and then it is right")


def check_token(home):
    Hub.token = "sesame"
    rc, _, err = kvant(home, "pull", "u/m")
    C.ok(rc != 0 and "HF_TOKEN" in err, (rc, err))
    n = len(Hub.log)
    C.ok(kvant(home, "pull", "u/m", HF_TOKEN="sesame")[0] == 0, "with the token")
    C.ok(all(bool(a) != p.startswith("/cdn") for p, _, a in Hub.log[n:]) and len(Hub.log) == n + 3, f"the token is for the hub alone: {Hub.log[n:]}")
    with open(os.path.join(home, "token"), "w", encoding="ascii") as f:
        f.write("sesame\n")
    C.ok(kvant(home, "pull", "u/m:Q8_0")[0] == 0, "the token's file")
    Hub.token = None


def check_offline(home):
    rc, path, err = kvant(home, "pull", "u/m")
    n = len(Hub.log)
    for args, env in ((("--offline",), {}), ((), {"HF_HUB_OFFLINE": "1"})):
        C.ok(kvant(home, "pull", "u/m", *args, **env)[:2] == (0, path) and len(Hub.log) == n, f"offline {err}")
    for ask in ("u/m:Q8_0", "u/none"):
        rc, _, err = kvant(home, "pull", ask, "--offline")
        C.ok(rc != 0 and "offline" in err and len(Hub.log) == n, (ask, err))
    rc, _, err = kvant(home, "pull", "u/m", HF_ENDPOINT="http://127.0.0.1:9")
    C.ok(rc != 0 and "--offline" in err and "127.0.0.1:9" in err, (rc, err))
    rc, _, err = kvant(home, "pull", "u/m", HF_ENDPOINT="file:///etc/passwd?")
    C.ok(rc != 0 and "wanted a URL" in err, (rc, err))
    rc, out, err = kvant(home, "plan", "-hf", "u/m", "--offline")
    C.ok(rc == 0 and "qwen2" in out + err, (rc, out, err))
    rc, _, err = kvant(home, "plan", "-hf", "u/m", "-m", "x.gguf")
    C.ok(rc == 2 and "wanted one" in err, (rc, err))


URL = start_hub()


def main():
    with tempfile.TemporaryDirectory() as base:
        first = kvant(base, "pull", "u/m")
        if "libcurl was not found" in first[2]:
            print("check_pull: SKIP: this build has no libcurl")
            return 0
        shutil.rmtree(os.path.join(base, "hub"), ignore_errors=True)
        for check in (check_choice, check_resume, check_token, check_offline):
            check(os.path.join(base, check.__name__))
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
