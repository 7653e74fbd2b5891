#!/usr/bin/env python3
"""packages: schemathesis

schemathesis against /openapi.json: no answer is a 500, none has a status, a type or a shape that the description lacks, and a body that breaks a
described type is refused.  Left out: /debug/events, which never ends, and whether every body of the described types is taken, since readers want more
than types say."""
import os
import subprocess
import sys

import rig

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,unsupported_method"


def described(url):
    st = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    r = subprocess.run([st, "run", url + "/openapi.json", "--exclude-path", "/debug/events", "--checks", CHECKS, "--max-examples", "8", "--phases",
                        "coverage,fuzzing", "--no-color", "--request-timeout", "20"], capture_output=True, text=True, timeout=900, check=False)
    print("\n".join(x for x in r.stdout.split("\n") if "generated" in x or "Tested" in x))
    assert r.returncode == 0, r.stdout[-4000:]


rig.run("openapi_schema", described)
