#!/usr/bin/env python3
"""check_oci: contrib/Dockerfile*: the health check is run as it is written, beside a server and without one; the packages of the image are those that
this program loads; compose names files that exist.  With a Docker daemon (and KVANT_TEST_OCI=1: it fetches Debian) the image is built and
started; else SKIP says so."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import DEMO, ROOT, Checks, Server, built, is_sanitized    # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
C = Checks("check_oci")
CONTRIB = os.path.join(ROOT, "contrib")


def health_of(path):
    """The command of HEALTHCHECK, in its JSON form."""
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("\\\n", "")
    m = re.search(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.M)
    return (json.loads(m.group(1)) if m else None), text


def check_health(files):
    with Server(BUILD, "-c", "256", "-np", "1") as s:
        for path in files:
            command, _ = health_of(path)
            command = [os.path.join(BUILD, "bin", "kvant") if w == "/usr/local/bin/kvant" else w for w in command]
            for port, wanted in ((s.port, 0), (1, 1)):
                r = subprocess.run(command, env=dict(os.environ, KVANT_ARG_PORT=str(port)), capture_output=True, text=True, check=False, timeout=20)
                C.ok((r.returncode == 0) == (wanted == 0), f"{os.path.basename(path)}: health of port {port}: {r.returncode} {r.stderr}")


def check_packages(text):
    """Of the run stage: what the program links to, but for the C library and what other packages bring."""
    if not shutil.which("dpkg") or is_sanitized(BUILD):
        print("SKIP check_oci: packages: no dpkg here, or a sanitizer's libraries")
        return
    needed = subprocess.run(["objdump", "-p", os.path.join(BUILD, "bin", "kvant")], capture_output=True, text=True, check=False).stdout
    listed = re.search(r"FROM debian:12-slim\nRUN.*?install -y --no-install-recommends(.*?)&&", text, re.S).group(1).split()
    for name in re.findall(r"NEEDED\s+(\S+)", needed):
        owner = subprocess.run(["dpkg", "-S", f"*/{name}"], capture_output=True, text=True, check=False).stdout.split(":")[0]
        C.ok(owner in listed or owner.startswith(("libc6", "libgcc-s1", "libstdc++6")) or name.startswith("libkvant"), f"{name} of {owner}: not in {listed}")


def check_compose():
    with open(os.path.join(CONTRIB, "compose", "compose.yaml"), encoding="utf-8") as f:
        text = f.read()
    for name in re.findall(r"(\.{1,2}/[\w./-]+\.(?:yaml|json)):", text):
        C.ok(os.path.exists(os.path.join(CONTRIB, "compose", name)), f"compose: {name} is not there")
    C.ok(len(re.findall(r"^  \w+:\n    (?:build|image)", text, re.M)) == 3, "compose: three services")


def check_image():
    running = shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    if not running or os.environ.get("KVANT_TEST_OCI") != "1":
        print("SKIP check_oci: the image is not built: " + ("KVANT_TEST_OCI=1 asks for it" if running else "no Docker daemon"))
        return
    r = subprocess.run(["docker", "build", "-q", "-f", "contrib/Dockerfile", "-t", "kvant-check", "."], cwd=ROOT, capture_output=True, text=True, check=False)
    if not C.ok(r.returncode == 0, f"docker build: {r.stderr[-500:]}"):
        return
    name = subprocess.run(["docker", "run", "-d", "--rm", "-v", f"{os.path.dirname(DEMO)}:/models:ro", "-e", f"KVANT_ARG_MODEL=/models/{os.path.basename(DEMO)}",
                           "-e", "KVANT_ARG_API_KEY=k", "kvant-check"], capture_output=True, text=True, check=True).stdout.strip()
    end, state = time.time() + 120, ""
    while time.time() < end and state != "healthy":
        time.sleep(2)
        state = subprocess.run(["docker", "inspect", "-f", "{{.State.Health.Status}}", name], capture_output=True, text=True, check=False).stdout.strip()
    C.ok(state == "healthy", f"the container is {state}")
    subprocess.run(["docker", "stop", name], capture_output=True, check=False)


def main():
    files = sorted(glob.glob(os.path.join(CONTRIB, "Dockerfile*")))
    C.ok(len(files) == 3 and all(health_of(f)[0] for f in files), f"health checks of {files}")
    if not built(BUILD):
        print("SKIP check_oci: this build has no server")
        return C.end()
    check_health(files)
    check_packages(health_of(os.path.join(CONTRIB, "Dockerfile"))[1])
    check_compose()
    check_image()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
