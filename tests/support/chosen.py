"""chosen.py: cases that take turns.  Where running every case on every commit takes longer than it tells, a commit runs some of them,
as its id says; over many commits all are run, and with KVANT_LONG=1 (./dev long) all at once."""
import hashlib
import os
import subprocess
import sys


def long():
    return bool(os.environ.get("KVANT_LONG"))


def commit_number(below):
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(hashlib.sha256(git.stdout.strip().encode()).hexdigest(), 16) % below


def some(names, parts, turn=0):
    """One of so many parts of the names; other turns of the same commit are other parts."""
    return list(names) if long() else list(names)[(commit_number(parts) + turn) % parts::parts]


def chosen_pairs(names, turn=0):
    """Every format once, as K or as V, beside its neighbour in the list, which is mostly of its class: each class stands on both sides.
    The commit chooses the side: over many commits every format has been on both.  Turn 1: the other side."""
    at = (commit_number(len(names)) + turn) % len(names)
    names = names[at:] + names[:at]
    pairs = list(zip(names[::2], names[1::2] + names[:1]))
    return [f"{k}:{v}" for k, v in pairs + ([(v, k) for k, v in pairs] if long() else [])]


LONGEST = ["check_kernels", "check_variants", "check_cli", "check_serve_tools", "check_devices", "check_serve_limits", "check_matmul",
           "check_serve_samplers", "check_serve_responses", "check_archs"]     # under the address sanitizer, 73 to 22 s


def longest_first(names):
    """So that every part gets its share of them."""
    return sorted(names, key=lambda n: (LONGEST.index(n) if n in LONGEST else len(LONGEST), n))


if __name__ == "__main__":  # chosen.py PARTS < names: those of this commit
    print("\n".join(some(longest_first(sys.stdin.read().split()), int(sys.argv[1]))))
