#!/usr/bin/env python3
"""pressure_serve: `./dev pressure [REQUESTS]`: REQUESTS (2,000) with shared beginnings, of two keys and three salts, against a pool of 35
pages, for dense, hybrid and mixture-of-experts models in two cache formats (finding A1).  0 may be lost or differ from alone.  Prints JSON:
what docs/evidence keeps."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import pressure    # noqa: E402
from serve import ROOT    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
results = []
for model in ("llama", "qwen35", "qwen3moe"):
    for fmt in ("f16", "tbq4_0"):
        results.append(pressure.run(BUILD, model, fmt, REQUESTS))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
print("[\n" + ",\n".join(" " + json.dumps(r) for r in results) + "\n]")
sys.exit(any(r["lost"] or r["different"] or r["pages"] != pressure.PAGES for r in results))
