"""chosen.py: which cases of a test run.  Where the suite's inputs changed since its last whole run (suites.py), all; else a smoke case and
an eighth of the others, in turn by the commit.  KVANT_LONG=1 (./dev long) adds what only repeats: pairs of formats that were each
tested beside others."""
import functools
import os

from support.suites import part, whole

whole = functools.lru_cache(whole)


def long():
    return bool(os.environ.get("KVANT_LONG"))


def cases(suite, names, smoke=1):
    """The first `smoke` names are always among them."""
    names = list(names)
    if whole(suite):
        return names
    some = part(names, smoke)
    print(f"chosen: {len(some)} of {len(names)} cases: nothing of {suite} changed since its whole run")
    return some


def each_side(names):
    """Pairs in which every name is K once and V once, beside its neighbours in the list, which are mostly of its class."""
    return [f"{k}:{v}" for k, v in zip(names, names[1:] + names[:1])]


def run_cases(suite, functions, smoke=1):
    """Functions without arguments; those that were chosen run."""
    for function in cases(suite, functions, smoke):
        function()
