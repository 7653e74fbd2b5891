#!/usr/bin/env python3
"""check_serve_ops: kvant serve as an operator sees it: files and links (A-05), log lines (A-06), system calls (A-08), what the program
can do at all (A-09, A-12), restores under eviction and damaged folders (P-10).  Ids are those of the reliability specification."""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import DEMO, ROOT, SLOW, Checks, Server, built, is_sanitized    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
KVANT = os.path.join(BUILD, "bin", "kvant")
C = Checks("check_serve_ops")
LONG = "The captain of the old ship looked at the sea and the town behind it. " * 8


def check_links(s, folder, outside):
    """A-05: links in the folder lead nowhere, whoever put them there."""
    s.post("/v1/completions", {"prompt": LONG, "max_tokens": 1})
    C.ok(s.post("/cache?action=save", {"filename": "good"})[0] == 200, "A-05 save")
    shutil.copy(os.path.join(folder, "good.kvs"), os.path.join(outside, "other.kvs"))
    os.symlink(os.path.join(outside, "other.kvs"), os.path.join(folder, "link.kvs"))
    os.symlink("/dev/zero", os.path.join(folder, "device.kvs"))
    os.mkfifo(os.path.join(folder, "pipe.kvs"))
    os.mkdir(os.path.join(folder, "dir.kvs"))
    for name in ("link", "device", "pipe", "dir"):
        t0 = time.time()
        status, r = s.post("/cache?action=restore", {"filename": name})
        C.ok(400 <= status < 500 and outside not in str(r) and time.time() - t0 < 2 * SLOW, f"A-05 restore {name}: {status} {r}")
    before = os.stat(os.path.join(outside, "other.kvs"))
    status, _ = s.post("/cache?action=save", {"filename": "link"})
    after = os.stat(os.path.join(outside, "other.kvs"))
    C.ok(before.st_mtime_ns == after.st_mtime_ns and before.st_size == after.st_size, "A-05 a save does not write through a link")
    C.ok(status != 200 or not os.path.islink(os.path.join(folder, "link.kvs")), "A-05 it takes the link's place")
    C.ok(s.post("/cache?action=save", {"filename": "dir"})[0] >= 400 and s.request("GET", "/health")[0] == 200, "A-05 a folder in the way")


def spoil(path, how):
    """What happens to a saved file before it is restored, and the status that says so."""
    if how == 1:
        os.truncate(path, 1000)
    if how == 2:
        os.unlink(path)
    return (200, 400, 404)[how]


def check_restores(s, folder):
    """P-10: restores of files that are whole, cut or gone, beside requests, in a pool that is full and evicts; every answer is the one that
    the file deserves.  (C5: what happens to a file happens in this thread, so the answers do not depend on who is faster.)"""
    over, answers = threading.Event(), []

    def load(i):
        n = 0
        while not over.is_set():
            answers.append(s.post("/v1/completions", {"prompt": f"{i} {n} " + LONG, "max_tokens": 4})[0])
            n += 1
    threads = [threading.Thread(target=load, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    wrong = []
    for i in range(45):
        answers.append(s.post("/v1/completions", {"prompt": f"own {i} " + LONG, "max_tokens": 1})[0])
        saved = s.post("/cache?action=save", {"filename": f"r{i}"})[0]
        wanted = spoil(os.path.join(folder, f"r{i}.kvs"), i % 3)
        status = s.post("/cache?action=restore", {"filename": f"r{i}"})[0]
        if (saved, status) != (200, wanted):
            wrong.append((i, saved, status, wanted))
    over.set()
    for t in threads:
        t.join(60 * SLOW)
    C.ok(not wrong, f"P-10 (file, save, restore, wanted): {wrong[:5]}")
    C.ok(set(answers) == {200} and s.idle(), f"P-10 {len(answers)} requests meanwhile: {set(answers)}")
    C.ok(s.metric("evicted_pages_total") > 0, "P-10 the pool was full")
    C.ok(s.metric("kv_pages_free") + s.metric("kv_pages_cached") == s.metric("kv_pages"), "P-10 pages are back")


def check_folder():
    """P-10: without its folder the server does not start, and says so; A12: a folder that is exchanged for a link is not followed."""
    with tempfile.TemporaryDirectory() as top:
        inside, outside = os.path.join(top, "store"), os.path.join(top, "outside")
        r = subprocess.run([KVANT, "serve", "-m", DEMO, "-c", "512", "--port", "0", "--slot-save-path", inside], capture_output=True, text=True,
                           timeout=60 * SLOW, check=False)
        C.ok(r.returncode not in (0, None) and inside in r.stderr and "directory" in r.stderr, f"P-10 no folder: {r.returncode} {r.stderr[-300:]}")
        os.mkdir(inside)
        os.mkdir(outside)
        with Server(BUILD, "-c", "512", "-np", "2", "--slot-save-path", inside) as s:
            s.post("/v1/completions", {"prompt": LONG, "max_tokens": 1})
            C.ok(s.post("/cache?action=save", {"filename": "x"})[0] == 200, "A12 save")
            os.rename(inside, inside + ".moved")
            os.symlink(outside, inside)
            status, r = s.post("/cache?action=save", {"filename": "y"})
            C.ok(status == 200 and os.listdir(outside) == [] and os.path.exists(inside + ".moved/y.kvs"), f"A12 a link in the folder's place: {r}")
            with open(os.path.join(outside, "z.kvs"), "wb") as f:
                f.write(b"foreign")
            status, r = s.post("/cache?action=restore", {"filename": "z"})
            C.ok(status == 404 and top not in str(r), f"A12 restore through a link, or a path in the answer: {status} {r}")
            shutil.rmtree(inside + ".moved")
            status, r = s.post("/cache?action=save", {"filename": "x"})
            C.ok(status >= 400 and "x" in r["error"]["message"] and top not in str(r), f"A12 the folder is gone: {status} {r}")
            C.ok(s.request("GET", "/health")[0] == 200, "P-10 health")


def serve_at(path):
    return subprocess.Popen([KVANT, "serve", "-m", DEMO, "-c", "512", "-np", "2", "--host", path], stderr=subprocess.PIPE, text=True)


def wait_ready(process):
    return any("ready:" in line for line in process.stderr)


def refused_at(path):
    """Exit code and messages of a server that cannot have this name."""
    process = serve_at(path)
    try:
        return process.wait(60 * SLOW), process.stderr.read()
    except subprocess.TimeoutExpired:
        return None, "it serves"
    finally:
        process.kill()


def check_socket():
    """A12: --host NAME.sock takes no name that is something else or another server's, cleans up after a dead one, and removes only its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.sock")
        with open(path, "w", encoding="ascii") as f:
            f.write("precious")
        code, text = refused_at(path)
        C.ok(code not in (0, None) and "not a socket" in text and os.path.getsize(path) == 8, f"A12 a regular file: {code} {text}")
        os.unlink(path)
        first = serve_at(path)
        C.ok(wait_ready(first) and stat.S_ISSOCK(os.stat(path).st_mode), "A12 a socket")
        code, text = refused_at(path)
        C.ok(code not in (0, None) and "another server" in text and os.path.exists(path), f"A12 a living server: {code} {text}")
        first.kill()
        first.wait()
        second = serve_at(path)
        C.ok(wait_ready(second), "A12 the socket of a dead server")
        os.unlink(path)
        with open(path, "w", encoding="ascii") as f:
            f.write("precious")
        second.terminate()
        C.ok(second.wait(60 * SLOW) == 0 and os.path.getsize(path) == 8, "A12 at the end only its own goes")
        os.unlink(path)
        third = serve_at(path)
        C.ok(wait_ready(third), "A12 once more")
        third.terminate()
        C.ok(third.wait(60 * SLOW) == 0 and not os.path.exists(path), "A12 its own socket goes at the end")


def check_logs():
    """A-06: what clients send does not end a log line or talk to the terminal; prompts are not logged."""
    with Server(BUILD, "-c", "512", "-np", "2", "-lv", "3") as s:
        for path in (b"/a\x1b[2Jb", b"/c\x9b31md", b"/e%0akvant: error: forged", b"/\xc2\x9b0m", b"/" + b"y" * 3000):
            s.raw(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 2)
        s.post("/v1/completions", {"prompt": "a secret word: xylophone", "max_tokens": 2})
        time.sleep(0.2)
        text = "\n".join(s.lines)
        C.ok("GET" in text, "A-06 requests are logged at this level")
        C.ok(not re.search(r"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", text) and "xylophone" not in text, "A-06 no control characters, no prompts")
        C.ok(all(line.startswith("kvant: ") for line in s.lines if line), [x for x in s.lines if not x.startswith("kvant: ")][:3])
        C.ok(not any(line.startswith("kvant: error: forged") for line in s.lines), "A-06 forged line")


def listening(pid):
    """Sockets of the process that listen."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            m = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
        if m:
            inodes.add(m.group(1))
    found = 0
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as f:
            for line in f.readlines()[1:]:
                part = line.split()
                found += part[9] in inodes and (part[3] == "0A" or name.startswith("udp"))
    return found


def check_calls():
    """A-08, A-09: one listening port, no connection of its own, no program started, over load, save, restore and the end."""
    strace = shutil.which("strace")
    if not strace:
        print("SKIP check_serve_ops: A-08: no strace here")
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        with Server(BUILD, "-c", "512", "-np", "2", "--slot-save-path", folder) as s:
            t = subprocess.Popen([strace, "-f", "-qq", "-o", trace, "-e", "trace=connect,execve,execveat,fork,vfork,socket,listen", "-p",
                                  str(s.process.pid)], stderr=subprocess.PIPE)
            time.sleep(1)
            C.ok(listening(s.process.pid) == 1, f"A-09 {listening(s.process.pid)} listening sockets")
            s.post("/v1/completions", {"prompt": LONG, "max_tokens": 8, "stream": False})
            s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "http://example.com/ https://127.0.0.1:1/"}], "max_tokens": 4})
            s.post("/cache?action=save", {"filename": "x"})
            s.post("/cache?action=restore", {"filename": "x"})
            for path in ("/", "/metrics", "/props", "/debug/trace"):
                s.request("GET", path)
            s.stop()
            t.wait(20)
        with open(trace, encoding="utf-8", errors="replace") as f:
            calls = [line for line in f if re.search(r"\b(connect|execve|execveat|fork|vfork|socket|listen)\(", line)]
        C.ok(not calls, f"A-08 {calls[:3]}")


def check_program():
    """A-09, A-12: what the program links, and how it was linked."""
    names = set(re.findall(r"U (\w+)", subprocess.run(["nm", "-D", "--undefined-only", KVANT], capture_output=True, text=True, check=False).stdout))
    bad = names & {"system", "popen", "execl", "execlp", "execle", "execv", "execvp", "execve", "execvpe", "posix_spawn", "posix_spawnp", "fork",
                   "vfork", "gets", "mktemp", "tmpnam"}
    C.ok(names and not bad, f"A-09 {bad}")
    sections = subprocess.run(["readelf", "-lW", KVANT], capture_output=True, text=True, check=False).stdout
    dynamic = subprocess.run(["readelf", "-dW", KVANT], capture_output=True, text=True, check=False).stdout
    C.ok("GNU_RELRO" in sections and re.search(r"GNU_STACK.* RW ", sections) is not None, "A-12 relro, no executable stack")
    sanitized = is_sanitized(BUILD)         # built without the hardening flags
    C.ok("PIE" in dynamic and (sanitized or "BIND_NOW" in dynamic), "A-12 bind now, position independent")
    C.ok(sanitized or "__stack_chk_fail" in names, "A-12 stack protector")


def check_room():
    """A server takes what `kvant plan` says of it, tells what its pool is of, and a size that it names is one that it takes."""
    env = {"KVANT_MEMORY": "256M"}
    r = subprocess.run([KVANT, "plan", DEMO, "--device", "cpu", "--json", "-c", "64", "-ctk", "f16"], capture_output=True, text=True, check=False,
                       env={**os.environ, **env})
    plan = json.loads(r.stdout)["serve"]
    with Server(BUILD, env=env, model=DEMO) as s:
        said = [line for line in s.lines if "cache: K" in line or "pool: " in line]
    text = "\n".join(said)
    C.ok(f"{plan['sequences']} sequences of at most {plan['n_ctx']} tokens, pool of {plan['pool_tokens']} tokens, {plan['snapshots']} snapshots" in text,
         f"plan {plan}, server {said}")
    named = re.search(r"--kv-pool-size (\d+M)", text)
    C.ok(named, f"no pool size in {said}")
    with Server(BUILD, "--kv-pool-size", named[1], env=env, model=DEMO) as s:
        said = [line for line in s.lines if "cache: K" in line]
    C.ok(int(re.search(r"pool of (\d+) tokens", said[0])[1]) > plan["pool_tokens"], f"{named[1]}: {said}")


def check_no_abort():
    """A12: nothing that a request can reach ends the process: a release has no assert, and only the program's own main may exit."""
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        cache = f.read()
    if "CMAKE_BUILD_TYPE:STRING=Release" not in cache or not re.search(r"^CMAKE_C_FLAGS_RELEASE:\w+=.*-DNDEBUG", cache, re.M):
        print("SKIP check_serve_ops: A12: asserts stay in a build that is not a release")
        return
    ends = {"__assert_fail", "abort", "exit", "quick_exit", "raise"}
    for name, may in (("bin/kvant", {"raise"}), ("lib/libkvant.a", {"raise"}), ("lib/libkvant-formats.a", set()),
                      ("lib/libkvant_server.a", set())):      # raise: file.c hands SIGBUS on
        r = subprocess.run(["nm", "--undefined-only", os.path.join(BUILD, name)], capture_output=True, text=True, check=False)
        names = set(re.findall(r"U (\w+)", r.stdout))
        C.ok("memcpy" in names and not (names & ends) - may, f"A12 {name}: {names & ends}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_ops: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as outside:
        with Server(BUILD, "-c", "512", "-np", "4", "--slot-save-path", folder, "--kv-pool-size", str(14 * 64 * 2048), model=DEMO) as s:
            check_links(s, folder, outside)
            check_restores(s, folder)
    check_folder()
    check_socket()
    check_logs()
    check_calls()
    check_program()
    check_room()
    check_no_abort()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
