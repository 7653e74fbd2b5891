"""kvant_build: the PEP 517 backend of kvant's wheel, with the standard library alone.  It packs what `cmake --install` gives: the
program, both shared libraries, libkvant-cuda.so where the build has it, and the ctypes module made of the headers.

    KVANT_BUILD=build/release pip wheel ./python        takes a build folder that is there
    pip wheel ./python                                  configures and builds build/wheel first: a C compiler, cmake, ninja"""
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TEXT = """Metadata-Version: 2.1
Name: kvant
Version: {version}
Summary: LLM engine with a paged, compressed key/value cache: formats, ops, engine and server
Requires-Python: >=3.10
Requires-Dist: numpy>=1.24
Provides-Extra: transformers
Requires-Dist: torch>=2.4; extra == 'transformers'
Requires-Dist: transformers>=5; extra == 'transformers'
"""
ENTRIES = """[console_scripts]
kvant = kvant.__main__:main

[vllm.general_plugins]
kvant = kvant.vllm:register
"""


class UnsupportedOperation(Exception):
    """A hook of PEP 517 that this backend does not have."""


def version():
    with open(os.path.join(ROOT, "include", "kvant", "kvant.h"), encoding="utf-8") as f:
        found = dict(re.findall(r"#define KVANT_VERSION_(\w+) (\d+)", f.read()))
    return f"{found['MAJOR']}.{found['MINOR']}.{found['PATCH']}"


def build_folder():
    """The build that KVANT_BUILD names (relative to the repository's root), else one of our own."""
    named = os.environ.get("KVANT_BUILD")
    build = os.path.join(ROOT, named or os.path.join("build", "wheel"))
    if not named:
        subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKVANT_TESTS=OFF"], check=True)
        subprocess.run(["cmake", "--build", build], check=True)
    if not os.path.exists(os.path.join(build, "CMakeCache.txt")):
        raise SystemExit(f"kvant_build: KVANT_BUILD: {build} is no build folder")
    return build


def pack_native(build, folder):
    """kvant/native/bin and lib: the program finds its libraries, and libkvant-cuda.so, beside itself."""
    prefix = os.path.join(folder, "prefix")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--strip"], check=True, stdout=subprocess.DEVNULL)
    native = os.path.join(folder, "wheel", "kvant", "native")
    os.makedirs(os.path.join(native, "bin"))
    os.makedirs(os.path.join(native, "lib"))
    shutil.copy(os.path.join(prefix, "bin", "kvant"), os.path.join(native, "bin"))
    for place, _, names in os.walk(prefix):
        for name in names:
            # A wheel has no links: each library once, under the name that others ask for.
            if re.fullmatch(r"libkvant(-formats)?\.so\.\d+", name) or name == "libkvant-cuda.so":
                shutil.copy(os.path.realpath(os.path.join(place, name)), os.path.join(native, "lib", name))


def pack_python(build, folder):
    package = os.path.join(folder, "wheel", "kvant")
    os.makedirs(package, exist_ok=True)
    for name in sorted(os.listdir(os.path.join(HERE, "kvant"))):
        if name.endswith((".py", ".pyi")) or name == "py.typed":
            shutil.copy(os.path.join(HERE, "kvant", name), package)
    subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools", "gen_python.py"), os.path.join(ROOT, "include"),
                    os.path.join(build, "generated", "include"), os.path.join(package, "_abi.py")], check=True)


def record_line(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def write_wheel(tree, out, info):
    record = ""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for place, folders, names in os.walk(tree):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(place, name)
                inside = os.path.relpath(path, tree)
                with open(path, "rb") as f:
                    data = f.read()
                entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100755 if "/bin/" in inside or ".so" in inside else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(entry, data, compresslevel=9)
                record += record_line(inside, data)
        z.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), record + f"{info}/RECORD,,\n")


def write_info(folder, tag):
    os.makedirs(folder)
    texts = {"METADATA": TEXT.format(version=version()), "entry_points.txt": ENTRIES,
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: kvant_build\nRoot-Is-Purelib: false\nTag: {tag}\n"}
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tag = f"py3-none-{platform.system().lower()}_{platform.machine()}"
    name = f"kvant-{version()}-{tag}.whl"
    build = build_folder()
    with tempfile.TemporaryDirectory() as folder:
        pack_native(build, folder)
        pack_python(build, folder)
        info = f"kvant-{version()}.dist-info"
        write_info(os.path.join(folder, "wheel", info), tag)
        write_wheel(os.path.join(folder, "wheel"), os.path.join(wheel_directory, name), info)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("kvant: wheels are made from a checkout; there is no source distribution")
