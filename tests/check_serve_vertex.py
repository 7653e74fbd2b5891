#!/usr/bin/env python3
"""check_serve_vertex: /predict as Vertex AI sends it: bodies of several routes in one request, beside the routes themselves; errors in their places;
a client that leaves takes all of its instances with it."""
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import ROOT, Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_vertex")
USER = [{"role": "user", "content": "Tell me about the sea."}]
SHORT = {"max_tokens": 8, "temperature": 0}


def predict(s, *instances):
    status, r = s.post("/predict", {"instances": list(instances)})
    C.ok(status == 200 and list(r) == ["predictions"] and len(r["predictions"]) == len(instances), (status, r))
    return r["predictions"]


def check_answers(s):
    chat = s.post("/v1/chat/completions", {"messages": USER, **SHORT})[1]["choices"][0]["message"]["content"]
    text = s.post("/v1/completions", {"prompt": "The sea", **SHORT})[1]["choices"][0]["text"]
    p = predict(s, {"@requestFormat": "chatCompletions", "messages": USER, **SHORT}, {"@requestFormat": "completions", "prompt": "The sea", **SHORT},
                {"@requestFormat": "/v1/chat/completions", "messages": USER, "stream": False, **SHORT}, {"@requestFormat": "tokenize", "content": "The sea"},
                {"@requestFormat": "messages", "messages": USER, "max_tokens": 8}, {"@requestFormat": "embeddings", "input": ["a", "b"]},
                {"@requestFormat": "responses", "input": "The sea", "max_output_tokens": 8})
    C.ok(p[0]["choices"][0]["message"]["content"] == p[2]["choices"][0]["message"]["content"] == chat, p)
    C.ok(p[1]["choices"][0]["text"] == text and p[3]["count"] > 0 and p[4]["type"] == "message" and p[6]["status"], p)
    C.ok(len(p[5]["data"]) == 2 and p[5]["data"][0]["embedding"] == s.post("/v1/embeddings", {"input": "a"})[1]["data"][0]["embedding"], p[5])
    C.ok(len({x["id"] for x in (p[0], p[1], p[2])}) == 3, "an id each")
    few = {"num_predict": 8, "temperature": 0}
    p = predict(s, {"@requestFormat": "/api/chat", "messages": USER, "options": few}, {"@requestFormat": "/api/generate", "prompt": "The sea", "options": few},
                {"@requestFormat": "generate", "inputs": "The sea", "parameters": {"max_new_tokens": 8}}, {"@requestFormat": "/api/generate", "prompt": "The sea"})
    C.ok(p[0]["message"]["content"] == chat and p[1]["done"] and p[1]["response"] and p[2]["generated_text"] == text and p[3]["response"],
         f"routes that stream by themselves: {p}")
    many = predict(s, *[{"@requestFormat": "completions", "prompt": "The sea", **SHORT}] * 64)
    C.ok(all(x["choices"][0]["text"] == text for x in many), "64 of them")


def check_errors(s):
    p = predict(s, {"@requestFormat": "completions", "prompt": "The sea", **SHORT}, {"@requestFormat": "nothing"}, {"prompt": "a"}, 7,
                {"@requestFormat": "completions", "prompt": "a", "stream": True}, {"@requestFormat": "completions", "prompt": "a", "top_p": 3},
                {"@requestFormat": "predict", "instances": []}, {"@requestFormat": "/generate_stream", "inputs": "a"},
                {"@requestFormat": "/api/chat", "messages": USER, "stream": True}, {"@requestFormat": "completions", "prompt": "a " * 5000})
    C.ok("choices" in p[0] and all(x["error"]["code"] == 400 for x in p[1:]), p)
    for x, word in zip(p[1:], ('"nothing"', "@requestFormat", "found 7", "stream", "top_p", "@requestFormat", "generate_stream", "stream", "context")):
        C.ok(word in x["error"]["message"], (word, x))
    for body in ({}, {"instances": []}, {"instances": 7}, {"instances": [{}] * 65}):
        status, r = s.post("/predict", body)
        C.ok(status == 400 and r["error"]["message"].startswith("instances: found"), (status, r))
    odd = [{"@requestFormat": "completions", "prompt": "a", **names, **SHORT} for names in ({"zz": 1, "yy": 1}, {}, {"xx": 1, "zz": 1})]
    status, headers, _ = s.request("POST", "/predict", {"instances": odd})
    C.ok(status == 200 and headers["x-kvant-ignored-fields"] == "zz, yy, xx", headers)


def check_gone(s):
    """Instances that would run to the end of the context stop when their client leaves."""
    one = '{"@requestFormat":"completions","prompt":"The sea","ignore_eos":true,"max_tokens":4000}'
    body = '{"instances":[' + ",".join([one] * 3) + "]}"
    k = socket.create_connection(("127.0.0.1", s.port))
    k.sendall(f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    end = time.time() + 20
    while (s.metric("num_requests_running") or 0) < 3 and time.time() < end:
        time.sleep(0.02)
    C.ok(s.metric("num_requests_running") == 3, "three run")
    k.close()
    C.ok(s.idle(), "all of them have stopped")


def main():
    with Server(BUILD, "-c", "4096", "-np", "4") as s:
        check_answers(s)
        check_errors(s)
        check_gone(s)
    with Server(BUILD, "--api-key", "k") as s:
        C.ok(s.post("/predict", {"instances": []})[0] == 401, "a key is asked for")
    return C.end()


if __name__ == "__main__":
    built(BUILD)
    sys.exit(main())
