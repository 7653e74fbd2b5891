#!/usr/bin/env python3
"""check_serve_openapi: /openapi.json is true: it has every route that the sources name and no other, each answers as a route does; each field with a
described type refuses other types, each required one is missed; every field of fields.def that a chat reads is there."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
TINY = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")
C = Checks("check_serve_openapi")
VALUES = {"string": "x", "integer": 3, "number": 0.5, "boolean": True, "array": [{}], "object": {"a": 1}, "null": None}


def routes():
    """(method, path) as the table of routes has them."""
    with open(os.path.join(ROOT, "src", "server", "routes", "routes.c"), encoding="utf-8") as f:
        text = f.read()
    loops = re.findall(r'LOOP\("(\w+)", "([^"]+)", \w+, ([^)]*)\)', text)
    workers = [("POST", p, "") for p in re.findall(r'WORKER\("([^"]+)"', text)] + [(m, p, "") for m, p in re.findall(r'\{ "(\w+)", "([^"]+)",', text)]
    return {(m.lower(), p + ("{name}" if "ROUTE_NAMED" in flags else "{slot}" if "ROUTE_SLOT" in flags else "")) for m, p, flags in loops + workers}


def check_routes(s, d):
    told = {(m, p) for p, o in d["paths"].items() for m in o}
    C.ok(told == routes() and len(told) > 70, f"{told ^ routes()}")
    for method, path in sorted(told):
        url = path.replace("{name}", "none").replace("{slot}", "0")
        if path == "/debug/events":
            continue
        status, h, data = s.request(method.upper(), url, {} if method == "post" else None)
        operation = d["paths"][path][method]
        known = operation["responses"].get(str(status))
        C.ok(known and status not in (405, 500) and (status != 404 or "{" in path or "models/" in path or path == "/api/show"), (method, path, status, data[:200]))
        media, kind = known["content"], h["content-type"].split(";")[0]
        C.ok(kind in media or "*/*" in media, (path, status, kind, media))
        C.ok(("parameters" in operation) and ("{" not in path or operation["parameters"][0]["in"] == "path"), path)


def check_types(s, d):
    """A described type is a promise: other types are refused."""
    n = 0
    for path, operations in d["paths"].items():
        schema = operations.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        for name in schema.get("required", []):
            status, r = s.post(path, {})
            C.ok(status == 400, (path, "without", name, r))
        for name, t in schema.get("properties", {}).items():
            allowed = t.get("type", [])
            allowed = [allowed] if isinstance(allowed, str) else allowed
            for kind in [k for k in VALUES if allowed and k not in allowed and not (k == "integer" and "number" in allowed) and k != "null"]:
                body = {"messages": [{"role": "user", "content": "q"}], "prompt": "a", "input": "a", "max_tokens": 1} if "messages" in schema["properties"] else {
                    "prompt": "a", "input": "a", "content": "a", "query": "a", "documents": ["a"], "tokens": [1], "texts": ["a"]}
                body = {k: v for k, v in body.items() if k in schema["properties"]}
                status, r = s.post(path, {**body, name: VALUES[kind]})
                C.ok(status in (400, 404), (path, name, kind, status, r))
                n += 1
    C.ok(n > 200, f"{n} wrong types were tried")


def check_fields(d):
    with open(os.path.join(ROOT, "src", "server", "request", "fields.def"), encoding="utf-8") as f:
        lines = re.findall(r'^READ\("(\w+)", ([^)]*)\)', f.read(), re.M)
    wanted = {name for name, on in lines if re.search(r"\b(CHAT|CHATS|GEN|CTN|ANY)\b", on)}
    got = set(d["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"])
    C.ok(d["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"] == ["messages"], "required fields are named")
    C.ok(wanted == got and len(got) > 60, f"{wanted ^ got}")


def main():
    if not built(BUILD):
        print("SKIP check_serve_openapi: this build has no server")
        return C.end()
    with Server(BUILD, "-c", "512", "-n", "2", "--chat-template", "chatml", model=TINY) as s:
        d = s.get("/openapi.json")[1]
        C.ok(d["openapi"] == "3.1.0" and "security" not in d and "servers" not in d, d["info"])
        check_routes(s, d)
        check_types(s, d)
        check_fields(d)
    with Server(BUILD, "-c", "512", "--api-key", "k", "--api-prefix", "/llm", model=TINY) as s:
        C.ok(s.request("GET", "/llm/openapi.json")[0] == 401, "it names what a key may do")
        d = s.get("/llm/openapi.json", headers={"Authorization": "Bearer k"})[1]
        C.ok(d["servers"] == [{"url": "/llm"}] and d["security"] and d["paths"]["/health"]["get"]["security"] == [], d["servers"])
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
