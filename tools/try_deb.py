#!/usr/bin/env python3
"""try_deb: the Debian packages in a Debian 12 of their own: installed by apt, started by systemd as the page says, asked, removed.

    tools/try_deb.py FOLDER OUT.json [ROOT]     FOLDER: kvant_*.deb, libkvant_*.deb, libkvant-dev_*.deb; ROOT: a fresh debootstrap that is
                                                there (it is changed), else one is made in a temporary folder

Wants root, debootstrap, unshare, nsenter and Debian's archive.  systemd runs as process 1 of namespaces of its own (processes, mounts,
network, control groups), so nothing of this machine is touched.  OUT.json is written when every step was as documented; else it stays as it was, and the
exit status is 1."""
import datetime
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = "novella-hybrid-q8_0.gguf"
NEEDS = "systemd,systemd-sysv,dbus,ca-certificates,curl"
BEGIN = """set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/shm dev/pts && mount -t tmpfs -o mode=1777 tmpfs dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount --make-rshared .        # services' credentials are mounted in a namespace of their own and come back from there
ip link set lo up 2>/dev/null || true
exec chroot . /usr/bin/env -i container=chroot PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
"""


class Steps:
    def __init__(self):
        self.list, self.bad = [], 0

    def __call__(self, name, good, found):
        self.list.append({"step": name, "as_documented": bool(good), "found": found})
        self.bad += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {found}", flush=True)


STEP = Steps()


def run(*command, text=None, wait=900):
    r = subprocess.run(command, capture_output=True, text=True, input=text, check=False, timeout=wait,
                       env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})
    return r.returncode, (r.stdout + r.stderr).strip()


def made_root(folder):
    root = os.path.join(folder, "debian")
    rc, text = run("debootstrap", "--variant=minbase", "--include=" + NEEDS, "bookworm", root, "http://deb.debian.org/debian", wait=1800)
    if rc:
        raise SystemExit(f"try_deb: debootstrap: {text[-400:]}")
    return root


def installed(root, folder):
    """The packages in the tree, by apt, with what they depend on."""
    for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists("/" + name):
            shutil.copy("/" + name, os.path.join(root, name))
    os.makedirs(os.path.join(root, "srv/models"), exist_ok=True)
    shutil.copy(os.path.join(ROOT, "models", MODEL), os.path.join(root, "srv/models"))
    debs = [max(glob.glob(os.path.join(folder, p + "_*.deb")), key=os.path.getmtime) for p in ("kvant", "libkvant", "libkvant-dev")]
    for d in debs:
        shutil.copy(d, os.path.join(root, "tmp"))
    before = listed(root)
    run("chroot", root, "apt-get", "update", "-qq")
    rc, text = run("chroot", root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *("/tmp/" + os.path.basename(d) for d in debs))
    STEP("apt install", rc == 0, text.splitlines()[-1] if rc else [f"{os.path.basename(d)} ({os.path.getsize(d)} bytes)" for d in debs])
    mode = os.stat(os.path.join(root, "etc/kvant/keys")).st_mode & 0o777
    STEP("a key was made", mode == 0o600, f"/etc/kvant/keys, mode {mode:o}")
    rc, text = run("chroot", root, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/kvant.service")
    STEP("systemd-analyze verify", rc == 0 and not text, text or "no word")
    return before


def listed(root):
    """Files of /etc, /usr and /var, but for what apt and systemd keep about themselves."""
    skip = ("var/lib/apt", "var/cache", "var/log", "var/lib/dpkg", "var/lib/systemd", "usr/share/doc", "etc/ld.so.cache", "etc/ssl", "etc/machine-id", "var/tmp")
    found = set()
    for top in ("etc", "usr", "var"):
        for place, _, names in os.walk(os.path.join(root, top)):
            for n in names:
                path = os.path.relpath(os.path.join(place, n), root)
                if not path.startswith(skip):
                    found.add(path)
    return found


class Booted:
    """systemd over the tree, in namespaces."""

    def __init__(self, root):
        self.child = subprocess.Popen(["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child", "sh", "-c", BEGIN,
                                       "sh", root], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.init = None
        for _ in range(600):
            time.sleep(0.1)
            rc, text = run("ps", "-o", "pid=,comm=", "--ppid", str(self.child.pid))
            if rc == 0 and text.split()[-1] == "systemd":
                self.init = text.split()[0]
                break
        STEP("systemd is process 1", self.init, f"pid {self.init}" if self.init else "never came")

    def __call__(self, *command, wait=120):
        return run("nsenter", "-t", self.init, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "/usr/bin/env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command, wait=wait)

    def until(self, good, *command, seconds=120):
        end = time.time() + seconds
        while True:
            rc, text = self(*command)
            if good(rc, text) or time.time() > end:
                return rc, text
            time.sleep(0.5)

    def end(self):
        if self.init:
            os.kill(int(self.init), 37)             # SIGRTMIN+3: halt
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()                       # its namespaces' processes go with it


def used(boot, root):
    """What the page says: name a model, start, ask with the key."""
    boot.until(lambda rc, t: t in ("running", "degraded"), "systemctl", "is-system-running")
    with open(os.path.join(root, "etc/kvant/serve.env"), "a", encoding="ascii") as f:
        f.write(f"KVANT_ARG_MODEL=/srv/models/{MODEL}\nKVANT_ARG_CTX_SIZE=2048\n")
    rc, text = boot("systemctl", "enable", "--now", "kvant")
    STEP("systemctl enable --now kvant", rc == 0, text.splitlines()[-1] if text else "no word")
    url = "http://127.0.0.1:8686"
    rc, text = boot.until(lambda rc, t: t == "200", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url + "/health")
    STEP("GET /health", text == "200", text)
    if text != "200":
        STEP("its log", False, boot("journalctl", "-u", "kvant", "-n", "15", "--no-pager", "-o", "cat")[1][-600:])
        return
    with open(os.path.join(root, "etc/kvant/keys"), encoding="ascii") as f:
        key = f.read().strip()
    ask = ("curl", "-s", "-w", " %{http_code}", url + "/v1/completions", "-d", '{"prompt": "Once upon", "max_tokens": 4}', "-H", "Content-Type: application/json")
    STEP("a request without a key", boot(*ask)[1].endswith(" 401"), boot(*ask)[1][-3:])
    rc, text = boot(*ask, "-H", "Authorization: Bearer " + key)
    STEP("a request with the key", text.endswith(" 200"), text[-3:])
    pid = boot("systemctl", "show", "-p", "MainPID", "--value", "kvant")[1]
    status = dict(line.split(":", 1) for line in boot("cat", f"/proc/{pid}/status")[1].splitlines())
    uid = int(status["Uid"].split()[0])
    STEP("the user of the service", 61184 <= uid <= 65519, f"uid {uid} (DynamicUser: 61184 to 65519)")
    environ = dict(v.split("=", 1) for v in boot("cat", f"/proc/{pid}/environ")[1].split("\0") if "=" in v)
    path = environ.get("KVANT_ARG_API_KEY_FILE", "")
    place = boot("stat", "-c", "%a %u", f"/proc/{pid}/root{path}")[1]
    STEP("the key is a credential", path == "/run/credentials/kvant.service/keys" and place.split()[0] in ("400", "440"), f"{path}, mode and owner {place}")
    rc, text = boot("systemctl", "reload", "kvant")
    again = boot(*ask, "-H", "Authorization: Bearer " + key)[1]
    STEP("systemctl reload", rc == 0 and again.endswith(" 200"), text or again[-3:])
    begin = time.time()
    rc, text = boot("systemctl", "restart", "kvant")
    rc, text = boot.until(lambda rc, t: t == "200", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url + "/health")
    STEP("systemctl restart", text == "200", f"answers {time.time() - begin:.1f} s later")


def removed(boot, root, before):
    rc, text = boot("apt-get", "purge", "-y", "-qq", "kvant", "libkvant", "libkvant-dev", wait=600)
    STEP("apt purge", rc == 0, text.splitlines()[-1] if rc else "no error")
    state = boot("systemctl", "is-active", "kvant")[1]
    STEP("the service ended", state in ("inactive", "unknown"), state)
    boot("apt-get", "autoremove", "--purge", "-y", "-qq", wait=600)
    left = sorted(p for p in listed(root) - before if "kvant" in p)
    STEP("files of kvant left", not left, left)


def record(path, debian, steps):
    """Evidence is of a whole run: nothing is written unless every step was as documented."""
    if steps.bad or not steps.list:
        return
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"date": datetime.date.today().isoformat(), "debian": debian, "steps": steps.list}, f, indent=1)
        f.write("\n")


def main():
    if os.geteuid() != 0 or len(sys.argv) < 3:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else made_root(folder)
        before = installed(root, sys.argv[1])
        boot = Booted(root)
        try:
            if boot.init:
                used(boot, root)
                removed(boot, root, before)
        finally:
            boot.end()
        with open(os.path.join(root, "etc/debian_version"), encoding="ascii") as f:
            debian = f.read().strip()
    record(sys.argv[2], debian, STEP)
    print(f"try_deb: {len(STEP.list) - STEP.bad} passed, {STEP.bad} failed")
    return STEP.bad


if __name__ == "__main__":
    sys.exit(main() > 0)
