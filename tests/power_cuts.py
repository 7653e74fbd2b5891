#!/usr/bin/env python3
"""power_cuts: P-03: what a power cut leaves of saved snapshots.  `python3 tests/power_cuts.py [BUILD] [CUTS]`, as root on a machine with
loop devices (not in CI).  The server saves into an ext4 image; at random moments the image is copied as it is and the copy mounted, which
replays its journal: every save that was acknowledged before must be there byte for byte, and whatever else is there must be a whole file."""
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import ROOT, Checks, Server    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
CUTS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
C = Checks("power_cuts")


def run(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


class Saver(threading.Thread):
    """Saves under new names and over old ones; known[name]: digests that an acknowledged file may have now."""

    def __init__(self, server, folder):
        super().__init__(daemon=True)
        self.s, self.folder, self.known, self.lock, self.saves, self.over = server, folder, {}, threading.Lock(), 0, False

    def run(self):
        r = random.Random(1)
        while not self.over:
            name = f"s{r.randrange(6)}"
            self.s.post("/v1/completions", {"prompt": f"{self.saves} " + "The captain of the old ship. " * 8, "max_tokens": 1})
            with self.lock:
                self.known.setdefault(name, set()).add("new")       # from here on the old or the new one
            if self.s.post("/cache?action=save", {"filename": name})[0] == 200:
                with self.lock:
                    self.known[name] = {digest(os.path.join(self.folder, name + ".kvs"))}
                    self.saves += 1


def check_copy(folder, store, known, verifier, i):
    """folder: the mounted copy; store: the verifier's, which holds its folder open and would not see a mount over it."""
    for name, digests in known.items():
        path = os.path.join(folder, name + ".kvs")
        there = os.path.exists(path)
        acknowledged = digests - {"new"}
        C.ok(there or not acknowledged, f"P-03 cut {i}: {name} was acknowledged and is gone")
        if there:
            C.ok("new" in digests or digest(path) in acknowledged, f"P-03 cut {i}: {name} has other bytes than were acknowledged")
            shutil.copyfile(path, os.path.join(store, name + ".kvs"))
            status, r = verifier.post("/cache?action=restore", {"filename": name})
            C.ok(status == 200, f"P-03 cut {i}: {name}: {r}")


def main():
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        print("SKIP power_cuts: wants root and mkfs.ext4")
        return 0
    with tempfile.TemporaryDirectory() as top:
        image, copy, live, dead, store = (os.path.join(top, x) for x in ("image", "copy", "live", "dead", "store"))
        for folder in (live, dead, store):
            os.mkdir(folder)
        with open(image, "wb") as f:
            f.truncate(48 << 20)
        if run("mkfs.ext4", "-q", image) or run("mount", "-o", "loop", image, live):
            print("SKIP power_cuts: no loop mount here")
            return 0
        args = ("-c", "512", "-np", "2", "--kv-pool-size", str(20 * 64 * 2048))
        verifier = Server(BUILD, *args, "--slot-save-path", store)
        server = Server(BUILD, *args, "--slot-save-path", live)
        saver = Saver(server, live)
        saver.start()
        r = random.Random(2)
        for i in range(CUTS):
            time.sleep(r.random() * 0.12)
            with saver.lock:
                known = {k: set(v) for k, v in saver.known.items()}
                server.process.send_signal(signal.SIGSTOP)          # the copy takes a moment
            shutil.copyfile(image, copy)
            server.process.send_signal(signal.SIGCONT)
            if not C.ok(run("mount", "-o", "loop", copy, dead) == 0, f"P-03 cut {i}: the copy does not mount"):
                continue
            check_copy(dead, store, known, verifier, i)
            run("umount", dead)
        saver.over = True
        saver.join(20)
        print(f"power_cuts: {CUTS} cuts, {saver.saves} saves")
        server.stop()
        verifier.stop()
        run("umount", live)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
