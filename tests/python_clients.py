#!/usr/bin/env python3
"""python_clients: the packages that agents are written with, unchanged, against kvant serve (./dev clients): openai, anthropic, litellm,
langchain-openai, instructor and ollama, and a loop of twenty steps with three tools.  The demo's model says nothing sensible; that calls of tools
and objects come back whole, and valid, is the server's work.  A package that is missing is a SKIP."""
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")      # it would fetch prices
from check_serve_tools import C, NOW, TOOLS, start    # noqa: E402

C.name = "python_clients"
USER = [{"role": "user", "content": "What will the weather be?"}]
CITIES = ("Paris", "Rome")


def weather(args):
    """Whether these are arguments of get_weather."""
    args = json.loads(args) if isinstance(args, str) else args
    return set(args) == {"city", "days"} and args["city"] in CITIES and 1 <= args["days"] <= 9


def check_openai(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
    r = client.chat.completions.create(model="m", messages=USER, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}})
    C.ok(weather(r.choices[0].message.tool_calls[0].function.arguments) and r.choices[0].finish_reason == "tool_calls", r)
    with client.chat.completions.stream(model="m", messages=USER, tools=TOOLS[:1], tool_choice="required", max_tokens=400,
                                        parallel_tool_calls=False) as stream:
        for _ in stream:
            pass
        C.ok(stream.get_final_completion().choices[0].message.tool_calls, "a streamed call")
    r = client.responses.create(model="m", input="Tell me about the sea.", max_output_tokens=8)
    C.ok(r.output_text and r.usage.output_tokens == 8, r)
    check_agent(client)


def check_agent(client):
    """Twenty steps, three tools: each step's call is answered, and the next step sees all of it."""
    tools = TOOLS + [{"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False}}}]
    do = {"get_weather": lambda a: "rain" if weather(a) else 1 / 0, "now": lambda a: "noon", "add": lambda a: str(a["a"] + a["b"])}
    messages, called, cached = list(USER), set(), 0
    for step in range(20):
        r = client.chat.completions.create(model="m", messages=messages, tools=tools, tool_choice="required", seed=step, temperature=1.5,
                                           parallel_tool_calls=False, max_tokens=400)
        m = r.choices[0].message
        messages.append(m.model_dump(exclude_none=True))
        cached += r.usage.prompt_tokens_details.cached_tokens
        for call in m.tool_calls:
            called.add(call.function.name)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": do[call.function.name](json.loads(call.function.arguments))})
    C.ok(len(called) == 3 and cached > 0, f"twenty steps: called {called}, {cached} tokens from the cache")


def check_anthropic(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in TOOLS]
    r = client.messages.create(model="m", messages=USER, max_tokens=16)
    C.ok(r.content[0].type == "text" and r.stop_reason == "max_tokens" and r.usage.output_tokens == 16, r)
    r = client.messages.create(model="m", messages=USER, max_tokens=200, tools=tools, tool_choice={"type": "tool", "name": "get_weather"})
    C.ok(r.stop_reason == "tool_use" and weather([b for b in r.content if b.type == "tool_use"][0].input), r)
    with client.messages.stream(model="m", messages=USER, max_tokens=200, tools=tools, tool_choice={"type": "any"}) as stream:
        C.ok([b for b in stream.get_final_message().content if b.type == "tool_use"], "a streamed call")
    C.ok(client.messages.count_tokens(model="m", messages=USER).input_tokens > 0, "count_tokens")


def check_litellm(url):
    import litellm
    litellm.suppress_debug_info = True
    common = {"model": "openai/m", "api_base": url + "/v1", "api_key": "k", "messages": USER}
    C.ok(litellm.completion(max_tokens=8, **common).usage.completion_tokens == 8, "a completion")
    text = "".join(p.choices[0].delta.content or "" for p in litellm.completion(max_tokens=8, stream=True, **common))
    C.ok(text, "a stream")
    r = litellm.completion(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}}, **common)
    C.ok(weather(r.choices[0].message.tool_calls[0].function.arguments), r)


def check_langchain_openai(url):
    from langchain_openai import ChatOpenAI
    llm = ChatOpenAI(base_url=url + "/v1", api_key="k", model="m", max_retries=0, max_tokens=200)
    C.ok(llm.bind(max_tokens=8).invoke("Tell me about the sea.").content, "a message")
    r = llm.bind_tools(TOOLS, tool_choice="get_weather").invoke("The weather?")
    C.ok(weather(r.tool_calls[0]["args"]), r)
    whole = None
    for part in llm.bind_tools([NOW], tool_choice="any").stream("The time?"):
        whole = part if whole is None else whole + part
    C.ok(whole.tool_calls[0]["name"] == "now", whole)


def check_instructor(url):
    import instructor
    import openai
    import pydantic

    class Weather(pydantic.BaseModel, extra="forbid"):      # a model without sense would add for ever
        city: str = pydantic.Field(pattern="^[A-Z][a-z]{1,8}$")
        days: int = pydantic.Field(ge=1, le=9)
        rain: list[bool] = pydantic.Field(min_length=1, max_length=3)

    client = instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key="k"), mode=instructor.Mode.TOOLS)
    got = client.chat.completions.create(model="m", messages=USER, response_model=Weather, max_retries=0, max_tokens=400)
    C.ok(isinstance(got, Weather), got)


def check_ollama(url):
    import ollama
    client = ollama.Client(host=url)
    name = client.list().models[0].model
    C.ok("completion" in client.show(name).capabilities and client.ps().models[0].model == name, "the model")
    short = {"num_predict": 8, "temperature": 0}
    r = client.chat(model=name, messages=USER, options=short)
    C.ok(r.message.content and r.done_reason == "length" and r.eval_count == 8, r)
    C.ok("".join(p.message.content for p in client.chat(model=name, messages=USER, options=short, stream=True)) == r.message.content, "a stream")
    C.ok(client.generate(model=name, prompt=USER[0]["content"], options=short).response == r.message.content, "a prompt")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    C.ok(1 <= json.loads(client.chat(model=name, messages=USER, format=schema).message.content)["n"] <= 9, "a schema")
    C.ok(len(client.embed(model=name, input=["a", "b"]).embeddings) == 2 and client.embeddings(model=name, prompt="a").embedding, "vectors")
    messages = list(USER)
    for turn in range(10):      # the package has no tool_choice: whatever the model writes has to be a message that goes on
        r = client.chat(model=name, messages=messages, tools=TOOLS, options={"num_predict": 24, "seed": turn})
        messages += [r.message, {"role": "user", "content": "And then?"}]
    messages[1:3] = [{"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
                     {"role": "tool", "tool_name": "now", "content": "noon"}]
    C.ok(client.chat(model=name, messages=messages, tools=TOOLS, options=short).message, "ten turns, and a tool's result")
    try:
        client.chat(model=name, messages=USER, options={"temperature": "x"})
        C.ok(False, "a wrong option is taken")
    except ollama.ResponseError as e:
        C.ok(e.status_code == 400 and "temperature" in e.error, e)


def check_cohere(url):
    import cohere
    client = cohere.ClientV2(api_key="k", base_url=url)
    C.ok(client.chat(model="m", messages=USER, max_tokens=8).message.content[0].text, "a message")
    parts = list(client.chat_stream(model="m", messages=USER, max_tokens=8))
    C.ok("".join(p.delta.message.content.text for p in parts if p.type == "content-delta") and parts[-1].delta.finish_reason == "MAX_TOKENS", parts)
    r = client.chat(model="m", messages=USER, tools=TOOLS[:1], tool_choice="REQUIRED", max_tokens=200)
    call = r.message.tool_calls[0]
    C.ok(weather(call.function.arguments), r)
    turn = USER + [{"role": "assistant", "tool_plan": "I look.", "tool_calls": [call]},
                   {"role": "tool", "tool_call_id": call.id, "content": [{"type": "document", "document": {"data": {"sky": "blue"}}}]}]
    C.ok(client.chat(model="m", messages=turn, tools=TOOLS[:1], tool_choice="NONE", max_tokens=8).message.content[0].text, "a turn after a tool")
    r = client.embed(model="m", texts=["the sea", "a storm"], input_type="search_document", embedding_types=["float"])
    C.ok(len(r.embeddings.float_) == 2 and len(r.embeddings.float_[0]) > 8 and r.texts == ["the sea", "a storm"], r)


def check_huggingface_hub(url):
    from huggingface_hub import InferenceClient
    client = InferenceClient(base_url=url + "/v1", api_key="k")
    C.ok(client.chat_completion(messages=USER, max_tokens=8).choices[0].message.content, "a message")
    C.ok("".join(p.choices[0].delta.content or "" for p in client.chat_completion(messages=USER, max_tokens=8, stream=True) if p.choices), "a stream")
    r = client.chat_completion(messages=USER, tools=TOOLS[:1], tool_choice="required", max_tokens=200)
    C.ok(weather(r.choices[0].message.tool_calls[0].function.arguments), r)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    r = client.chat_completion(messages=USER, response_format={"type": "json_object", "value": schema}, max_tokens=400)
    C.ok(1 <= json.loads(r.choices[0].message.content)["n"] <= 9, r)
    check_text_generation(InferenceClient(base_url=url, api_key="k"), schema)
    vectors = InferenceClient(model=url + "/embed", api_key="k").feature_extraction("the sea")
    C.ok(vectors.shape[0] == 1 and vectors.shape[1] > 8, vectors)
    r = InferenceClient(model=url + "/similarity", api_key="k").sentence_similarity("the sea", other_sentences=["a storm", "the sea"])
    C.ok(len(r) == 2 and r[0] < r[1] and abs(r[1] - 1) < 1e-4, r)


def check_text_generation(client, schema):
    """text-generation-inference's own API, which text_generation speaks."""
    from huggingface_hub.errors import ValidationError
    text = client.text_generation("The sea", max_new_tokens=8)
    C.ok(text and "".join(client.text_generation("The sea", max_new_tokens=8, stream=True)) == text, "a stream's tokens")
    parts = list(client.text_generation("The sea", max_new_tokens=8, stream=True, details=True))
    C.ok(parts[-1].generated_text == text and parts[-1].details.finish_reason == "length" and len(parts) == 8, parts)
    r = client.text_generation("The sea", max_new_tokens=8, details=True, decoder_input_details=True, return_full_text=True)
    C.ok(r.generated_text == "The sea" + text and len(r.details.tokens) == 8 and r.details.prefill[-1].logprob < 0, r)
    r = client.text_generation("A number", max_new_tokens=60, grammar={"type": "json", "value": schema})
    C.ok(1 <= json.loads(r)["n"] <= 9, r)
    try:
        C.ok(False, client.text_generation("The sea", best_of=3, do_sample=True))
    except ValidationError as e:
        C.ok("best_of" in str(e), e)


def check_mistralai(url):
    from mistralai.client import Mistral
    client = Mistral(api_key="k", server_url=url)
    C.ok(client.chat.complete(model="m", messages=USER, max_tokens=8).choices[0].message.content, "a message")
    C.ok("".join(p.data.choices[0].delta.content or "" for p in client.chat.stream(model="m", messages=USER, max_tokens=8) if p.data.choices), "a stream")
    r = client.chat.complete(model="m", messages=USER, tools=TOOLS[:1], tool_choice="any", max_tokens=200)
    C.ok(weather(r.choices[0].message.tool_calls[0].function.arguments), r)
    models = client.models.list().data
    C.ok(client.models.retrieve(model_id=models[0].id).id == models[0].id and models[0].capabilities.function_calling, models)
    C.ok(len(client.embeddings.create(model="m", inputs=["a", "b"]).data) == 2, "embeddings")
    C.ok(client.fim.complete(model="m", prompt="The sea", max_tokens=8).choices[0].message.content, "a text that goes on")


def main():
    with start("hermes") as s:
        for package, check in (("openai", check_openai), ("anthropic", check_anthropic), ("litellm", check_litellm),
                               ("langchain_openai", check_langchain_openai), ("instructor", check_instructor), ("ollama", check_ollama), ("cohere", check_cohere),
                               ("huggingface_hub", check_huggingface_hub), ("mistralai", check_mistralai)):
            if importlib.util.find_spec(package) is None:
                print(f"SKIP python_clients: no package {package}")
                continue
            try:
                check(f"http://127.0.0.1:{s.port}")
            except Exception as e:      # noqa: BLE001: whatever a client raises is this test's failure
                C.ok(False, f"{package}: {type(e).__name__}: {e}")
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
