"""counted: checks of the scripts in this folder, counted; a failure is told at once.  interface: the package that they are about."""
import json
import os
import sys

COUNTS = {True: 0, False: 0}


def ok(condition, text):
    COUNTS[bool(condition)] += 1
    if not condition:
        print(f"FAIL {os.path.splitext(os.path.basename(sys.argv[0]))[0]}: {text}")


def refused(kind, words, f, *arguments, **named):
    """f fails with an error of this kind that has these words."""
    try:
        f(*arguments, **named)
    except kind as e:
        ok(all(w in str(e) for w in words), f"error without {words}: {e}")
    else:
        ok(False, f"no error with {words}")


def interface(module, path, real):
    """A package's names: of the real one, or of a record, which then stands in for it.  module: vllm_interface or dynamo_interface."""
    if real:
        return module.record()
    with open(path, encoding="utf-8") as f:
        found = json.load(f)
    module.stand_in(found)
    return found


def ended(name):
    """The last line of a script, and its exit code."""
    print(f"{name}: {COUNTS[True]} passed, {COUNTS[False]} failed")
    return int(COUNTS[False] > 0 or COUNTS[True] == 0)
