#!/usr/bin/env python3
"""check_serve_pressure: requests that share beginnings against a pool of 35 pages of a hybrid model (A1): none is lost, each answer is the
one that it is alone.  `./dev pressure` runs more of them, on all families."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import pressure    # noqa: E402
from serve import ROOT, Checks, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_pressure")
if built(BUILD):
    r = pressure.run(BUILD, "qwen35", "f16", 200)
    C.ok(r["pages"] == pressure.PAGES, f"{r['pages']} pages, wanted {pressure.PAGES}")
    C.ok(r["lost"] == 0, f"A1 {r['lost']} of 200 requests lost, the first one: {r['first_lost']}")
    C.ok(r["different"] == 0, f"A1 {r['different']} of 200 answers differ from the one alone")
    C.ok(r["unplanned"] == 0, f"A1 {r['unplanned']} preemptions without a plan: a promise was wrong")
    C.ok(r["evicted"] > 200, f"only {r['evicted']} pages were evicted: no pressure")
else:
    print("check_serve_pressure: skipped, this build has no server")
sys.exit(C.end())
