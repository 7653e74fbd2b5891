#!/usr/bin/env python3
"""older_glibc: a wheel whose programs and libraries ask for nothing newer than a glibc: tools/older_glibc.py WHEEL GLIBC OUT_FOLDER

A system's linker binds each symbol to the newest version that its glibc has (pthread_create to 2.34, where it moved into libc.so.6), although
the same function is there under an older name too.  This tool unbinds: in every ELF file of the wheel a symbol of glibc newer than GLIBC
(2.28) asks for no version, if this system's own libc.so.6 or libm.so.6 list an older one of it, and files that use what was in libpthread,
libdl or libresolv before 2.34 ask for those.  What has no older version (stat and its like, which were inline before 2.33) comes from
libkvant-glibc.so, made here of the C text below.  A symbol that neither has is an error.  Wants pyelftools, patchelf and a C compiler."""
import ctypes.util
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvant_build      # noqa: E402

SHIM = "libkvant-glibc.so"
TEXT = """
#define _GNU_SOURCE
#include <stddef.h>
struct stat;
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
OLD(__xstat); OLD(__lxstat); OLD(__fxstat);
__asm__(".symver __fxstatat,__fxstatat@GLIBC_2.4");
int stat(const char *path, struct stat *s) { return __xstat(1, path, s); }
int lstat(const char *path, struct stat *s) { return __lxstat(1, path, s); }
int fstat(int fd, struct stat *s) { return __fxstat(1, fd, s); }
int fstat64(int fd, struct stat *s) { return __fxstat(1, fd, s); }
int fstatat(int at, const char *path, struct stat *s, int flags) { return __fxstatat(1, at, path, s, flags); }
int __res_query(const char *, int, int, unsigned char *, int);
int __res_nsearch(void *, const char *, int, int, unsigned char *, int);
int __res_hnok(const char *);
int __res_dnok(const char *);
int __dn_expand(const unsigned char *, const unsigned char *, const unsigned char *, char *, int);
int __dn_skipname(const unsigned char *, const unsigned char *);
OLD(__res_query); OLD(__res_nsearch); OLD(__res_hnok); OLD(__res_dnok); OLD(__dn_expand); OLD(__dn_skipname);
int res_query(const char *name, int class, int type, unsigned char *out, int cap) { return __res_query(name, class, type, out, cap); }
int res_nsearch(void *state, const char *name, int class, int type, unsigned char *out, int cap)
{
    return __res_nsearch(state, name, class, type, out, cap);
}
int res_hnok(const char *name) { return __res_hnok(name); }
int res_dnok(const char *name) { return __res_dnok(name); }
int dn_expand(const unsigned char *from, const unsigned char *end, const unsigned char *at, char *out, int cap)
{
    return __dn_expand(from, end, at, out, cap);
}
int dn_skipname(const unsigned char *at, const unsigned char *end) { return __dn_skipname(at, end); }
char __libc_single_threaded = 0;        /* perhaps several threads: always true enough */
"""
OWN = set(re.findall(r"^(?:int|char) ((?!__[a-km-z])\w+)(?:\(.*[^;]$| = )", TEXT, re.M))


def number(version):
    return tuple(int(x) for x in re.findall(r"\d+", version))


def offered():
    """{symbol: versions} of this system's glibc, those included that only old programs ask for."""
    found = {}
    for name in ("c", "m"):
        text = subprocess.run(["readelf", "-W", "--dyn-syms", path_of(name)], capture_output=True, text=True, check=True).stdout
        for symbol, version in re.findall(r" (?!UND)\S+ (\w+)@@?(GLIBC_[\d.]+)", text):
            found.setdefault(symbol, set()).add(version)
    return found


def path_of(name):
    soname = ctypes.util.find_library(name)     # libresolv.so.2 is a stub here, and has the functions on older systems
    text = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"{re.escape(soname)} \(.*x86-64.*\) => (\S+)", text).group(1)


class File:
    """The version tables of one ELF file."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            elf = ELFFile(f)
            sections = {s.name: s for s in elf.iter_sections()}
            self.ok = ".gnu.version_r" in sections
            if not self.ok:
                return
            self.versym, self.need = sections[".gnu.version"]["sh_offset"], sections[".gnu.version_r"]
            self.at, self.strings = self.need["sh_offset"], sections[".dynstr"]
            self.symbols = [(i, s.name) for i, s in enumerate(sections[".dynsym"].iter_symbols()) if s["st_shndx"] == "SHN_UNDEF" and s.name]
            self.entries = {}
            for verneed, auxes in self.need.iter_versions():
                for a in auxes:
                    self.entries[a["vna_other"]] = (verneed.name, a.name)
        with open(path, "rb") as f:
            self.data = bytearray(f.read())

    def place(self, i):
        return self.versym + 2 * i

    def needs(self):
        """(place, index) of every entry of .gnu.version_r."""
        at = self.at
        while True:
            _, count, _, aux, following = struct.unpack_from("<HHIII", self.data, at)
            place = at + aux
            for _ in range(count):
                _, _, other, _, step = struct.unpack_from("<IHHII", self.data, place)
                yield place, other
                place += step
            if not following:
                return
            at += following

    def too_new(self, most):
        """[(number, name, library)] of the symbols, and the indices of those versions."""
        new = {k for k, (_, v) in self.entries.items() if v.startswith("GLIBC_2") and number(v) > most}
        found = ((i, name, struct.unpack_from("<H", self.data, self.place(i))[0] & 0x7fff) for i, name in self.symbols)
        return [(i, name) for i, name, k in found if k in new], new


def bound(path, have, most, libraries):
    """Rewrites one file.  A symbol without a version finds the oldest one that a library has, on every glibc: dl-lookup.c takes the base
    version, else the only one.  True: it uses the shim."""
    file = File(path)
    symbols, _ = file.too_new(most) if file.ok else ([], None)
    if not symbols:
        return False
    names = {name for _, name in symbols}
    lost = [n for n in names if n not in OWN and not any(number(v) <= most for v in have.get(n, ()))]
    if lost:
        raise SystemExit(f"older_glibc: {path}: {', '.join(sorted(lost))} found, newer than {'.'.join(map(str, most))} and none of our own")
    needed = [SHIM] if names & OWN else []
    for library, prefixes in (("libpthread.so.0", ("pthread_", "thrd_", "sem_")), ("libdl.so.2", ("dl",)), ("libresolv.so.2", ("res_", "ns_", "dn_"))):
        needed += [library] if any(n.startswith(prefixes) for n in names) else []
    subprocess.run(["patchelf", *(a for n in needed for a in ("--add-needed", n)), path], check=True)
    near = os.path.join("$ORIGIN", os.path.relpath(libraries, os.path.dirname(path)))
    paths = subprocess.run(["patchelf", "--print-rpath", path], capture_output=True, text=True, check=True).stdout.strip().split(":")
    if names & OWN and near not in paths:
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", ":".join(filter(None, [*paths, near])), path], check=True)
    file = File(path)           # patchelf moved tables
    symbols, new = file.too_new(most)
    base = next(k for k, (library, v) in file.entries.items() if library == "libc.so.6" and v == "GLIBC_2.2.5")
    at = next(place for place, k in file.needs() if k == base)
    for i, _ in symbols:
        struct.pack_into("<H", file.data, file.place(i), 1)
    for place, k in file.needs():
        if k in new:            # nobody asks for it any more
            file.data[place:place + 4], file.data[place + 8:place + 12] = file.data[at:at + 4], file.data[at + 8:at + 12]
    with open(path, "wb") as f:
        f.write(file.data)
    left = [v for _, v in File(path).entries.values() if v.startswith("GLIBC_2") and number(v) > most]
    if left:
        raise SystemExit(f"older_glibc: {path}: {left} left")
    return bool(names & OWN)


def made_shim(folder, libraries):
    source = os.path.join(folder, "shim.c")
    with open(source, "w", encoding="ascii") as f:
        f.write(TEXT)
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-soname," + SHIM, source, path_of("resolv"), "-o", os.path.join(libraries, SHIM)], check=True)


def main():
    wheel, glibc, out = sys.argv[1:4]
    most, have = number(glibc), offered()
    with tempfile.TemporaryDirectory() as folder:
        tree = os.path.join(folder, "wheel")
        with zipfile.ZipFile(wheel) as z:
            z.extractall(tree)
        info = next(n for n in os.listdir(tree) if n.endswith(".dist-info"))
        libraries = next((os.path.join(tree, n) for n in os.listdir(tree) if n.endswith(".libs")), None)
        if not libraries:
            raise SystemExit(f"older_glibc: {wheel} has no folder of libraries: a wheel that auditwheel repaired wanted")
        shims = 0
        for place, _, names in os.walk(tree):
            for name in names:
                path = os.path.join(place, name)
                with open(path, "rb") as f:
                    if f.read(4) == b"\x7fELF":
                        shims += bound(path, have, most, libraries)
        if shims:
            made_shim(folder, libraries)
        machine = re.search(r"_(x86_64|aarch64)\.whl$", wheel).group(1)
        tag = f"py3-none-manylinux_{most[0]}_{most[1]}_{machine}"
        with open(os.path.join(tree, info, "WHEEL"), "w", encoding="ascii") as f:
            f.write(f"Wheel-Version: 1.0\nGenerator: kvant_build\nRoot-Is-Purelib: false\nTag: {tag}\n")
        os.remove(os.path.join(tree, info, "RECORD"))
        os.makedirs(out, exist_ok=True)
        path = os.path.join(out, f"{info[:-len('.dist-info')]}-{tag}.whl")
        kvant_build.write_wheel(tree, path, info)
        print(path)


if __name__ == "__main__":
    main()
