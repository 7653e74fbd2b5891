#!/usr/bin/env python3
"""check_serve_openai: the official `openai` Python client against kvant serve, unchanged.  The package comes from a virtual
environment of the tests (.venv, made by ./dev test); without it this test says SKIP."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, ".."))
VENV = os.environ.get("KVANT_TEST_VENV", os.path.join(ROOT, ".venv"))
sys.path.insert(0, os.path.join(HERE, "support"))
from serve import Checks, Server, built    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_openai")
CHAT = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Tell me about the sea."}]


def run(s, openai):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="k", max_retries=0)
    model = client.models.list().data[0].id
    r = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0)
    C.ok(r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 8 and r.object == "text_completion", r)
    text = r.choices[0].text
    parts = list(client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True))
    C.ok("".join(p.choices[0].text for p in parts) == text, "completions: streamed and whole are one text")
    r = client.completions.create(model=model, prompt=["a", "b"], n=2, max_tokens=3, logprobs=3, seed=1, stop=["zzz"])
    C.ok(len(r.choices) == 4 and len(r.choices[0].logprobs.tokens) == 3 and len(r.choices[0].logprobs.top_logprobs[0]) in (3, 4), r)
    check_chat(client, model)
    check_schema(client, model)
    check_errors(client, model, openai)
    r = client.embeddings.create(model=model, input=["a cat", "a dog"])         # the client asks for base64 itself
    f = client.embeddings.create(model=model, input="a cat", encoding_format="float")
    C.ok(len(r.data) == 2 and len(r.data[0].embedding) == 384 and r.usage.prompt_tokens > 0, "embeddings")
    C.ok(max(abs(a - b) for a, b in zip(r.data[0].embedding, f.data[0].embedding)) < 1e-6, "base64 and float agree")


def check_chat(client, model):
    r = client.chat.completions.create(model=model, messages=CHAT, max_completion_tokens=8, temperature=0, logprobs=True, top_logprobs=2)
    c = r.choices[0]
    C.ok(c.message.role == "assistant" and c.message.content and c.finish_reason == "length", r)
    C.ok(len(c.logprobs.content) == 8 and len(c.logprobs.content[0].top_logprobs) == 2 and c.logprobs.content[0].bytes, c.logprobs)
    C.ok(r.usage.prompt_tokens_details.cached_tokens >= 0 and r.usage.total_tokens == r.usage.prompt_tokens + 8, r.usage)
    text, usage = "", None
    for p in client.chat.completions.create(model=model, messages=CHAT, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}):
        usage = p.usage or usage
        for choice in p.choices:
            text += choice.delta.content or ""
    C.ok(text == c.message.content and usage.completion_tokens == 8, f"{text!r}")
    with client.chat.completions.create(model=model, messages=CHAT, max_tokens=2000, stream=True) as stream:     # left early
        next(iter(stream))
    with client.chat.completions.stream(model=model, messages=CHAT, extra_body={"grammar": 'root ::= "well"'}) as stream:
        C.ok(len(list(stream)) > 1 and stream.get_final_completion().choices[0].message.content == "well", "stream helper")


def check_schema(client, model):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    r = client.chat.completions.create(model=model, messages=CHAT, max_tokens=60,
                                       response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}})
    C.ok(r.choices[0].message.content.replace(" ", "").replace("\n", "").startswith('{"ok":'), r.choices[0].message.content)


def check_errors(client, model, openai):
    """B6: what is asked for and not there is BadRequestError, which the client does not repeat."""
    for kind, call in [(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="a", suffix="b")),
                       (openai.BadRequestError, lambda: client.completions.create(model=model, prompt="a", temperature=9)),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=[])),
                       (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=CHAT, tools=[
                           {"type": "function", "function": {"name": "a name of words", "parameters": {}}}]))]:
        try:
            call()
            C.ok(False, f"{kind.__name__} was expected")
        except openai.APIStatusError as e:
            C.ok(isinstance(e, kind) and e.body["type"] and e.body["message"], f"{kind.__name__}: {e!r}")


def check_keys(openai):
    with Server(BUILD, "-c", "512", "-np", "1", env={"KVANT_ARG_API_KEY": "right"}) as s:
        url = f"http://127.0.0.1:{s.port}/v1"
        C.ok(openai.OpenAI(base_url=url, api_key="right").models.list().data, "right key")
        try:
            openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
            C.ok(False, "a wrong key was let in")
        except openai.AuthenticationError as e:
            C.ok(e.status_code == 401, e)


def main():
    python = os.path.join(VENV, "bin", "python")
    if sys.prefix != os.path.realpath(VENV) and sys.prefix != VENV:
        if os.path.exists(python) and subprocess.run([python, "-c", "import openai"], capture_output=True, check=False).returncode == 0:
            return subprocess.run([python, os.path.abspath(__file__), BUILD], check=False).returncode
        print("SKIP check_serve_openai: no openai package in .venv (./dev test makes it where pip works)")
        return C.end()
    import openai
    if not built(BUILD):
        print("SKIP check_serve_openai: this build has no server")
        return C.end()
    with Server(BUILD, "-c", "2048", "-np", "4") as s:
        run(s, openai)
    check_keys(openai)
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
