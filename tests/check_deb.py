#!/usr/bin/env python3
"""check_deb: the Debian packages of this build (cmake/package.cmake): what lies in which, what they depend on, the maintainer scripts
over a folder in place of /, the service file by systemd-analyze, the program and a program against libkvant-dev in that folder."""
import contextlib
import glob
import importlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, is_sanitized      # noqa: E402

C = Checks("check_deb")


def run(*command, env=None, cwd=None):
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}, cwd=cwd)


def made(build, folder):
    """{package: path} of what cpack writes."""
    r = run("cpack", "-G", "DEB", "-B", folder, "--config", os.path.join(build, "CPackConfig.cmake"), cwd=folder)
    C.ok(r.returncode == 0, f"cpack: {r.stdout[-400:]} {r.stderr[-400:]}")
    return {os.path.basename(p).split("_")[0]: p for p in glob.glob(os.path.join(folder, "*.deb"))}


def check_content(packages):
    wanted = {"kvant": (r"/usr/bin/kvant$", r"/usr/lib/systemd/system/kvant\.service$", r"/usr/share/kvant/serve\.env$", r"/man1/kvant\.1", r"/bash-completion/"),
              "libkvant": (r"/libkvant\.so\.[0-9.]+$", r"/libkvant-formats\.so\.[0-9.]+$", r"/libqjl\.so\.[0-9.]+$"),
              "libkvant-dev": (r"/libkvant\.a$", r"/libkvant\.so$", r"/include/kvant/engine\.h$", r"/kvant\.pc$", r"/libqjl\.a$", r"/include/qjl\.h$", r"/qjl\.pc$", r"/kvant-config\.cmake$")}
    C.ok(set(packages) == set(wanted), f"packages: {sorted(packages)}")
    listed = {name: run("dpkg-deb", "-c", path).stdout for name, path in packages.items()}
    for name, patterns in wanted.items():
        for p in patterns:
            C.ok(re.search(p.rstrip("$") + r"( -> .*)?$" if p.endswith("$") else p, listed.get(name, ""), re.M), f"{name} has no {p}")
    C.ok(not re.search(r"\.(a|h)$", listed["kvant"] + listed["libkvant"], re.M), "headers or archives outside libkvant-dev")
    needs = {name: run("dpkg-deb", "-f", path, "Depends").stdout for name, path in packages.items()}
    C.ok("libmicrohttpd" in needs["kvant"] and "libpcre2-8-0" in needs["libkvant"] and "libkvant (=" in needs["libkvant-dev"], f"depends: {needs}")


def check_evidence(folder):
    """tools/try_deb.py leaves its evidence alone unless every step was as documented."""
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    module, path = importlib.import_module("try_deb"), os.path.join(folder, "deb.json")
    for steps, written in (((), False), ((True, False), False), ((True, True), True)):
        step = module.Steps()
        with contextlib.redirect_stdout(io.StringIO()):
            for good in steps:
                step("planted", good, "found")
        module.record(path, "12", step)
        C.ok(os.path.exists(path) == written, f"evidence of steps {steps}: {os.path.exists(path)}, want {written}")
    os.remove(path)


def check_scripts(package, root):
    control = os.path.join(root, "DEBIAN")
    run("dpkg-deb", "-e", package, control)
    keys = os.path.join(root, "etc/kvant/keys")
    for again in range(2):
        r = run("sh", os.path.join(control, "postinst"), "configure", env={"DPKG_ROOT": root})
        C.ok(r.returncode == 0 and stat.S_IMODE(os.stat(keys).st_mode) == 0o600, f"postinst: {r.stderr}")
        with open(keys, encoding="ascii") as f:
            key = f.read()
        C.ok(re.fullmatch(r"[\w=-]{32}\n", key) and (again == 0 or key == first), f"the key: {len(key)} bytes")
        first = key
    C.ok(os.path.exists(os.path.join(root, "etc/kvant/serve.env")), "no serve.env")
    for script, argument in (("prerm", "remove"), ("postrm", "purge")):
        r = run("sh", os.path.join(control, script), argument, env={"DPKG_ROOT": root})
        C.ok(r.returncode == 0, f"{script}: {r.stderr}")
    C.ok(not os.path.exists(os.path.join(root, "etc/kvant")), "purge left what the scripts made")
    shutil.rmtree(control)


def check_service(root):
    if not shutil.which("systemd-analyze"):
        print("SKIP check_deb: the service file: no systemd-analyze here")
        return
    unit = glob.glob(os.path.join(root, "**", "kvant.service"), recursive=True)[0]
    with open(unit, encoding="utf-8") as f:
        text = f.read()
    C.ok("LoadCredential=keys:/etc/kvant/keys\n" in text and "KVANT_ARG_API_KEY_FILE=%d/keys" in text, "the key is no credential")
    programs = re.findall(r"^Exec\w+=[-+!@:]*(\S+)", text, re.M)
    C.ok(set(programs) == {"/usr/bin/kvant", "/bin/sh"}, f"{programs}: others than the package's and /bin/sh are no part of every Debian (kill is procps')")
    with tempfile.TemporaryDirectory() as folder:       # the program is where the package puts it, not in this machine's /usr/bin
        for name, word, fine in (("kvant.service", "ExecStart=", True), ("planted.service", "ExecStrat=", False)):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace("ExecStart=/usr/bin/kvant", word + os.path.join(root, "usr/bin/kvant")))
            r = run("systemd-analyze", "verify", "--man=no", path)
            C.ok((r.returncode == 0 and not r.stderr.strip()) == fine, f"{name}: {r.returncode} {r.stderr.strip()[-300:]}")


def check_use(root):
    r = run(os.path.join(root, "usr/bin/kvant"), "--version")
    C.ok(r.returncode == 0 and r.stdout.startswith("kvant "), f"the program: {r.stderr}")
    lib = os.path.dirname(glob.glob(os.path.join(root, "usr/lib/**/libkvant.so"), recursive=True)[0])
    program = os.path.join(root, "device")
    r = run(os.environ.get("CC", "cc"), os.path.join(ROOT, "examples/device.c"), "-I" + os.path.join(root, "usr/include"), "-L" + lib, "-lkvant", "-lkvant-formats",
            "-lm", "-o", program)
    C.ok(r.returncode == 0, f"cc: {r.stderr[-300:]}")
    r = run(program, "cpu", "tbq4_0", env={"LD_LIBRARY_PATH": lib})
    C.ok(r.returncode == 0 and "relative error" in r.stdout, f"device.c: {r.stdout} {r.stderr}")


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    missing = [t for t in ("cpack", "dpkg-deb", "dpkg-shlibdeps") if not shutil.which(t)]
    if missing or is_sanitized(build):
        print(f"SKIP check_deb: {'a build with a sanitizer' if not missing else 'no ' + ', '.join(missing)}")
        return C.end()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        check_evidence(root)
        packages = made(build, folder)
        if len(packages) == 3:
            check_content(packages)
            for path in packages.values():
                run("dpkg-deb", "-x", path, root)
            check_scripts(packages["kvant"], root)
            check_service(root)
            check_use(root)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
