#!/usr/bin/env python3
"""check_serve_responses: /v1/responses over HTTP, beside /v1/chat/completions, whose texts and calls it must give: items, tools, thoughts,
streams in OpenAI's order, conversations that go on from an id, and, where the openai package is, its client."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "support"))
from check_serve_tools import NOW, WEATHER, start    # noqa: E402
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
VENV = os.environ.get("KVANT_TEST_VENV", os.path.join(ROOT, ".venv"))
C = Checks("check_serve_responses")
ASK = "Tell me about the sea."
TOOLS = [{"type": "function", **t["function"]} for t in (WEATHER, NOW)]
SET = {"temperature": 0, "max_output_tokens": 40}


def respond(s, **body):
    status, r = s.post("/v1/responses", {**SET, **body})
    C.ok(status == 200, (status, r))
    return r


def chat(s, messages, **body):
    return s.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 40, **body})[1]


def stream(s, **body):
    status, headers, data = s.request("POST", "/v1/responses", {**SET, **body, "stream": True})
    C.ok(status == 200 and headers["content-type"] == "text/event-stream", (status, data))
    frames = [f.split("\n", 1) for f in data.decode().split("\n\n") if f]
    events = [json.loads(d[6:]) for _, d in frames]
    C.ok([n[7:] for n, _ in frames] == [e["type"] for e in events], "the name of a frame is its type")
    C.ok([e["sequence_number"] for e in events] == list(range(len(events))), "sequence numbers")
    return events


def text_of(r):
    return "".join(p["text"] for i in r["output"] if i["type"] == "message" for p in i["content"])


def check_whole(s):
    want = chat(s, [{"role": "user", "content": ASK}])
    r = respond(s, input=ASK)
    C.ok(r["object"] == "response" and r["id"].startswith("resp_") and r["status"] == "incomplete" and r["error"] is None, r)
    C.ok(r["incomplete_details"] == {"reason": "max_output_tokens"} and r["output"][-1]["status"] == "incomplete", r)
    C.ok(text_of(r) == want["choices"][0]["message"]["content"] and r["output"][0]["role"] == "assistant", (r, want))
    u = r["usage"]
    C.ok(u["input_tokens"] == want["usage"]["prompt_tokens"] and u["output_tokens"] == 40 and u["total_tokens"] == u["input_tokens"] + 40, u)
    C.ok(u["output_tokens_details"]["reasoning_tokens"] == 0 and "cached_tokens" in u["input_tokens_details"], u)
    C.ok(r["max_output_tokens"] == 40 and r["temperature"] == 0 and r["tools"] == [] and r["tool_choice"] == "auto" and r["store"] is True and
         r["text"] == {"format": {"type": "text"}} and r["previous_response_id"] is None and 0 < r["top_p"] <= 1, r)
    C.ok(respond(s, input=ASK, metadata={"a": "b"})["metadata"] == {"a": "b"}, "metadata comes back")
    items = [{"role": "developer", "content": "Be brief."}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A boat?"}]},
             {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
             {"role": "user", "content": ASK}]
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A boat?"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": ASK}]
    want = chat(s, plain)
    r = respond(s, input=items)
    C.ok(text_of(r) == want["choices"][0]["message"]["content"] and r["usage"]["input_tokens"] == want["usage"]["prompt_tokens"], (r, want))
    r = respond(s, input=items[1:], instructions="Be brief.")
    C.ok(r["usage"]["input_tokens"] == want["usage"]["prompt_tokens"] and r["instructions"] == "Be brief.", r)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    r = respond(s, input=ASK, text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}})
    C.ok(r["status"] == "completed" and r["incomplete_details"] is None and 1 <= json.loads(text_of(r))["n"] <= 9, r)


def check_stream(s):
    whole, events = respond(s, input=ASK), stream(s, input=ASK)
    kinds = [e["type"] for e in events]
    C.ok(kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"], kinds)
    C.ok(kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"], kinds)
    C.ok(set(kinds[4:-4]) == {"response.output_text.delta"} and len(kinds) > 12, kinds)
    deltas = "".join(e["delta"] for e in events if "delta" in e)
    last = events[-1]["response"]
    C.ok(deltas == events[-4]["text"] == events[-3]["part"]["text"] == events[-2]["item"]["content"][0]["text"] == text_of(last) == text_of(whole), deltas)
    C.ok(events[0]["response"]["status"] == "in_progress" and events[0]["response"]["output"] == [] and events[0]["response"]["id"] == last["id"], events[0])
    C.ok(len({e["item_id"] for e in events if "item_id" in e} | {last["output"][0]["id"]}) == 1 and last["usage"]["output_tokens"] == 40, last)
    C.ok(set(last) == set(whole), set(last) ^ set(whole))


def check_turns(s):
    """previous_response_id goes on with the conversation; the instructions of a turn are of that turn alone."""
    first = respond(s, input=ASK, instructions="Be brief.")
    second = respond(s, input="And boats?", previous_response_id=first["id"])
    said = [{"role": "user", "content": ASK}, {"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "And boats?"}]
    want = chat(s, said)
    C.ok(text_of(second) == want["choices"][0]["message"]["content"] and second["usage"]["input_tokens"] == want["usage"]["prompt_tokens"], (second, want))
    C.ok(second["previous_response_id"] == first["id"], second)
    third = stream(s, input="Why?", previous_response_id=second["id"])[-1]["response"]
    said += [{"role": "assistant", "content": text_of(second)}, {"role": "user", "content": "Why?"}]
    C.ok(third["usage"]["input_tokens"] == chat(s, said)["usage"]["prompt_tokens"], third["usage"])
    fourth = respond(s, input="Who?", previous_response_id=third["id"])
    said += [{"role": "assistant", "content": text_of(third)}, {"role": "user", "content": "Who?"}]
    C.ok(fourth["usage"]["input_tokens"] == chat(s, said)["usage"]["prompt_tokens"], "a streamed response is kept too")
    gone = respond(s, input=ASK, store=False)
    C.ok(gone["store"] is False, gone)
    for name in (gone["id"], "resp_nothing"):
        status, r = s.post("/v1/responses", {"input": "x", "previous_response_id": name})
        C.ok(status == 400 and r["error"]["param"] == "previous_response_id" and name in r["error"]["message"], (status, r))


def check_tenants():
    """One key's conversations are not another's; the oldest go when there are too many."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("first\nsecond\n")
        f.flush()
        s = Server(BUILD, "-np", "2", "-c", "512", "--api-key-file", f.name)
    with s:
        keys = [{"Authorization": f"Bearer {k}"} for k in ("first", "second")]
        body = {"input": "a", "max_output_tokens": 1}
        r = s.post("/v1/responses", body, headers=keys[0])[1]
        for method, k, want in (("GET", 1, 404), ("DELETE", 1, 404), ("GET", 0, 200)):
            C.ok(s.request(method, "/v1/responses/" + r["id"], headers=keys[k])[0] == want, f"{method}, key {k}")
        C.ok(s.request("GET", "/v1/responses/" + r["id"])[0] == 401, "no key")
        for k, want in ((0, 200), (1, 400)):
            C.ok(s.post("/v1/responses", {**body, "previous_response_id": r["id"]}, headers=keys[k])[0] == want, f"key {k}")
    tiny = os.path.join(ROOT, "tests", "golden", "tiny", "llama.gguf")      # a thousand requests, of which only the count matters
    with Server(BUILD, "-np", "2", "-c", "512", "--chat-template", "chatml", model=tiny) as s:
        body = {"input": "a", "max_output_tokens": 0, "metadata": {}}
        first = s.post("/v1/responses", body)[1]["id"]
        later = [s.post("/v1/responses", body)[1]["id"] for _ in range(1023)]
        C.ok(s.post("/v1/responses", {**body, "previous_response_id": first, "store": False})[0] == 200, "1024 are kept")
        s.post("/v1/responses", body)
        C.ok(s.post("/v1/responses", {**body, "previous_response_id": first, "store": False})[0] == 400, "the oldest is gone")
        C.ok(s.post("/v1/responses", {**body, "previous_response_id": later[0], "store": False})[0] == 200, "the next one is not")


def check_tools(s):
    more = {"tools": TOOLS, "tool_choice": "required", "temperature": 0.7, "seed": 3, "max_output_tokens": 160, "parallel_tool_calls": False}
    r = respond(s, input=ASK, **more)
    call = r["output"][-1]
    C.ok(call["type"] == "function_call" and call["status"] == "completed" and r["status"] == "completed" and call["name"] in ("get_weather", "now"), r)
    C.ok(call["id"].startswith("fc_") and call["call_id"].startswith("call_") and isinstance(json.loads(call["arguments"]), dict), call)
    C.ok(r["tools"] == TOOLS and r["tool_choice"] == "required" and r["parallel_tool_calls"] is False, r)
    one = respond(s, input=ASK, **{**more, "tool_choice": {"type": "function", "name": "get_weather"}})["output"][-1]
    C.ok(one["name"] == "get_weather" and json.loads(one["arguments"])["city"] in ("Paris", "Rome"), one)
    events = stream(s, input=ASK, **more)
    kinds = [e["type"] for e in events if e["type"] not in ("response.function_call_arguments.delta",)]
    C.ok(kinds == ["response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.done",
                   "response.output_item.done", "response.completed"], kinds)
    added, done = [e for e in events if e["type"].startswith("response.output_item")]
    C.ok(added["item"]["arguments"] == "" and added["item"]["status"] == "in_progress" and added["item"]["call_id"] == done["item"]["call_id"], (added, done))
    deltas = "".join(e.get("delta", "") for e in events)
    C.ok(deltas == call["arguments"] == done["item"]["arguments"] == [e for e in events if e["type"].endswith("arguments.done")][0]["arguments"], deltas)
    check_results(s, r, call)


def check_results(s, first, call):
    """The result of a call: behind an id, or with everything that was said, both as in a chat."""
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees"}
    body = {"tools": TOOLS}
    by_id = respond(s, input=[result], previous_response_id=first["id"], **body)
    whole = respond(s, input=[{"role": "user", "content": ASK}, *first["output"], result], **body)
    said = [{"role": "user", "content": ASK},
            {"role": "assistant", "content": None, "tool_calls": [{"id": call["call_id"], "type": "function",
                                                                   "function": {"name": call["name"], "arguments": call["arguments"]}}]},
            {"role": "tool", "tool_call_id": call["call_id"], "content": "21 degrees"}]
    want = chat(s, said, tools=[WEATHER, NOW])
    C.ok(by_id["usage"]["input_tokens"] == whole["usage"]["input_tokens"] == want["usage"]["prompt_tokens"], (by_id["usage"], whole["usage"], want["usage"]))
    C.ok(text_of(by_id) == text_of(whole) == (want["choices"][0]["message"]["content"] or ""), (by_id, whole, want))


def check_thoughts():
    s = start("hermes", thinks=True)
    with s:
        more = {"max_output_tokens": 60, "temperature": 0.7, "seed": 3, "thinking_budget_tokens": 12}
        r = respond(s, input=ASK, **more)
        kinds = [i["type"] for i in r["output"]]
        C.ok(kinds == ["reasoning", "message"] and r["output"][0]["content"][0]["type"] == "reasoning_text" and r["output"][0]["summary"] == [], r)
        C.ok(10 <= r["usage"]["output_tokens_details"]["reasoning_tokens"] <= 40, r["usage"])
        events = stream(s, input=ASK, **more)
        kinds = [e["type"].removeprefix("response.") for e in events if not e["type"].endswith("delta")]
        C.ok(kinds == ["created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.done", "content_part.done", "output_item.done",
                       "output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done", "incomplete"], kinds)
        last = events[-1]["response"]
        C.ok([i["content"][0]["text"] for i in last["output"]] == [i["content"][0]["text"] for i in r["output"]], (last["output"], r["output"]))
        C.ok([e["output_index"] for e in events if e["type"] == "response.output_item.done"] == [0, 1], "indexes")
        off = respond(s, input=ASK, reasoning={"effort": "none"}, max_output_tokens=10)
        C.ok([i["type"] for i in off["output"]] == ["message"] and off["reasoning"] == {"effort": "none"}, off)


def check_bad(s):
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    for body, word in [({}, "input"), ({"input": 7}, "input"), ({"input": [image]}, "input"), ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
                       ({"input": [{"type": "function_call", "name": "f"}]}, "call_id"), ({"input": "a", "background": True}, "background"),
                       ({"input": "a", "conversation": "c"}, "conversation"),
                       ({"input": "a", "tool_choice": {"type": "allowed_tools"}}, "tool_choice"), ({"input": "a", "top_logprobs": 2}, "top_logprobs"),
                       ({"input": "a", "text": 7}, "text"), ({"input": "a", "reasoning": 7}, "reasoning"), ({"input": "a", "instructions": 7}, "instructions"),
                       ({"input": "a", "max_output_tokens": "x"}, "max_tokens"), ({"input": "a", "store": 1}, "store"), ({"messages": []}, "messages"),
                       ({"input": "a", "previous_response_id": 7}, "previous_response_id"), ({"input": [{"role": "nobody", "content": "x"}]}, "role"),
                       ({"input": [7]}, "(none)"), ({"input": []}, "messages"), ({"input": "a", "n": 2}, "n: not supported")]:
        status, r = s.post("/v1/responses", body)
        C.ok(status == 400 and word in r["error"]["message"] and r["error"]["type"] == "invalid_request_error", (body, status, r))


CLIENT = '''
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0)
r = client.responses.create(model="m", input="Hello", max_output_tokens=8, temperature=0)
assert r.status == "incomplete" and r.output_text and r.usage.output_tokens == 8, r
with client.responses.stream(model="m", input="Hello", max_output_tokens=8, temperature=0) as events:
    kinds = [e.type for e in events]
    last = events.get_final_response() if kinds[-1] == "response.completed" else None
assert kinds[0] == "response.created" and kinds[-1] == "response.incomplete", kinds
two = client.responses.create(model="m", input="And?", previous_response_id=r.id, max_output_tokens=4)
assert two.usage.input_tokens > r.usage.input_tokens, two
try:
    client.responses.create(model="m", input="x", previous_response_id="resp_x")
    raise SystemExit("no error")
except openai.BadRequestError as e:
    assert e.param == "previous_response_id", e
print("fine")
'''


def check_stored(s):
    """What came back comes again by its id; then it is gone."""
    asked = [{"role": "user", "content": f"{i}. {ASK}"} for i in range(3)] + [{"type": "message", "id": "msg_mine", "role": "user",
             "content": [{"type": "input_text", "text": ASK}]}]
    r, last = respond(s, input=asked), [e for e in stream(s, input=ASK) if e["type"] in ("response.completed", "response.incomplete")][-1]["response"]
    for want in (r, last):
        status, _, data = s.request("GET", "/v1/responses/" + want["id"])
        C.ok(status == 200 and json.loads(data) == want, (want, data))

    def items(query=""):
        status, _, data = s.request("GET", f"/v1/responses/{r['id']}/input_items{query}")
        return json.loads(data) if status == 200 else (status, data)
    ids = ["msg_in_0", "msg_in_1", "msg_in_2", "msg_mine"]
    for query, want, more in (("", ids[::-1], False), ("?order=asc", ids, False), ("?limit=2", ids[:1:-1], True), ("?order=asc&limit=2&after=msg_in_1", ids[2:], False),
                              ("?after=msg_in_0", [], False)):
        got = items(query)
        C.ok([x["id"] for x in got["data"]] == want and got["has_more"] is more and got["object"] == "list", (query, got))
        C.ok((got["first_id"], got["last_id"]) == ((want[0], want[-1]) if want else (None, None)), (query, got))
    first = items("?order=asc&limit=1")["data"][0]
    C.ok(first == {"role": "user", "id": "msg_in_0", "type": "message", "content": [{"type": "input_text", "text": f"0. {ASK}"}]}, first)
    status, _, data = s.request("GET", f"/v1/responses/{last['id']}/input_items")
    C.ok(status == 200 and json.loads(data)["data"][0]["content"] == [{"type": "input_text", "text": ASK}], data)
    C.ok(s.request("DELETE", f"/v1/responses/{r['id']}/input_items")[0] == 404, "items cannot be deleted")
    status, _, data = s.request("DELETE", "/v1/responses/" + r["id"])
    C.ok(status == 200 and json.loads(data) == {"id": r["id"], "object": "response.deleted", "deleted": True}, data)
    for method, path in (("GET", r["id"]), ("DELETE", r["id"]), ("GET", r["id"] + "/input_items"), ("GET", last["id"] + "/other"), ("GET", "x" * 80)):
        status, _, data = s.request(method, "/v1/responses/" + path)
        C.ok(status == 404 and json.loads(data)["error"]["param"] == "response_id", (method, path, data))
    C.ok(s.post("/v1/responses", {"input": ASK, "previous_response_id": r["id"]})[0] == 400, "nothing goes on with it")
    kept = s.post("/v1/responses", {"input": ASK, "max_output_tokens": 2, "store": False})[1]
    C.ok(s.request("GET", "/v1/responses/" + kept["id"])[0] == 404, "store false")


def check_client(s):
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python) or subprocess.run([python, "-c", "import openai"], capture_output=True, check=False).returncode:
        print("SKIP check_serve_responses: no openai package for its client")
        return
    r = subprocess.run([python, "-c", CLIENT, f"http://127.0.0.1:{s.port}/v1"], capture_output=True, text=True, check=False)
    C.ok(r.stdout.strip() == "fine", r.stdout[-500:] + r.stderr[-1500:])


def main():
    if not built(BUILD):
        return C.end()
    with start("hermes") as s:
        check_whole(s)
        check_stream(s)
        check_turns(s)
        check_stored(s)
        check_tools(s)
        check_bad(s)
        check_client(s)
    check_thoughts()
    check_tenants()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
