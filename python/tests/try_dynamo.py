"""try_dynamo: kvant.dynamo, a worker of NVIDIA Dynamo: its interface against Dynamo's names, and a `kvant serve` behind it.

    python try_dynamo.py REPOSITORY          the recorded interface (python/tests/interfaces/dynamo-*.json)
    python try_dynamo.py REPOSITORY real     the ai-dynamo that this interpreter imports

Prints "try_dynamo: N passed, M failed"."""
import asyncio
import glob
import inspect
import json
import os
import re
import sys
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT, REAL = sys.argv[1], "real" in sys.argv
sys.path.append(os.path.join(ROOT, "tests", "support"))
import dynamo_interface         # noqa: E402
import kv_events                # noqa: E402
from counted import ended, interface, ok   # noqa: E402

MODEL = os.path.join(ROOT, "models", "novella-hybrid-q8_0.gguf")
IDS = [(37 * i + i * i) % 200 + 10 for i in range(200)]


class Context:
    """Of a request: Dynamo's, as far as a worker uses it."""

    def __init__(self, name):
        self.name, self.stopped = name, False

    def id(self):
        return self.name

    def is_stopped(self):
        return self.stopped


def check_names(found, engine):
    """The methods have Dynamo's parameters, and what is built of its classes are fields of theirs."""
    theirs = found["classes"]["dynamo.common.backend"]["LLMEngine"]
    ok(not engine.__abstractmethods__, f"missing: {engine.__abstractmethods__}")
    for name, wanted in theirs["methods"].items():
        if name in vars(engine):
            f = inspect.getattr_static(engine, name)
            have = dynamo_interface.parameters(getattr(f, "__func__", f))
            ok(have == wanted, f"{name}: {have} found, Dynamo {found['version']} calls {wanted}")


def server(engine, path, body=None):
    request = urllib.request.Request(engine.server.url + path, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return r.read().decode()


async def answer(engine, name="a", **fields):
    return [c async for c in engine.generate({"token_ids": IDS, **fields}, Context(name))]


async def check_answers(engine):
    """Tokens as /completion has them; usage, log-probabilities, a schema."""
    greedy = {"sampling_options": {"temperature": 0.0}, "stop_conditions": {"max_tokens": 8, "ignore_eos": True}}
    want = json.loads(server(engine, "/completion", {"prompt": IDS, "n_predict": 8, "temperature": 0, "ignore_eos": True, "return_tokens": True}))
    got = await answer(engine, **greedy, output_options={"logprobs": 2})
    last = got[-1]
    ok([t for c in got for t in c["token_ids"]] == want["tokens"] and all(c["index"] == 0 for c in got), f"{got} found, {want['tokens']} wanted")
    ok(last["finish_reason"] == "length" and last["completion_usage"] == {
        "prompt_tokens": 200, "completion_tokens": 8, "total_tokens": 208, "prompt_tokens_details": {"cached_tokens": 192}}, f"the end: {last}")
    ok(all(len(c["log_probs"]) == len(c["token_ids"]) and c["top_logprobs"][0][0]["token_id"] == c["token_ids"][0] and len(c["top_logprobs"][0]) == 2
           for c in got[:-1]), f"log-probabilities: {got[0]}")
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    got = await answer(engine, sampling_options={"temperature": 0.0, "guided_decoding": {"json": schema, "regex": None}}, stop_conditions={"max_tokens": 64})
    text = json.loads(server(engine, "/detokenize", {"tokens": [t for c in got for t in c["token_ids"]]}))["content"]
    ok(re.search(r'\{\s*"a"\s*:\s*(true|false)\s*\}', text) and got[-1]["finish_reason"] == "stop", f"a schema: {text}")


async def check_refusals(engine):
    from dynamo.llm.exceptions import InvalidArgument
    for fields, words in (({"sampling_options": {"n": 2}}, "n: 2"), ({"sampling_options": {"guided_decoding": {"regex": "a+"}}}, "regex"),
                          ({"token_ids": [10 ** 6]}, "0 to 8191"), ({"token_ids": IDS * 20}, "4000 tokens")):
        try:
            await answer(engine, **fields)
            ok(False, f"no error: {words}")
        except InvalidArgument as e:
            ok(words in str(e), f"{words} wanted in: {e}")


async def check_unknown(engine):
    """An option without a field is told once; one that asks for nothing is not."""
    with unittest.TestCase().assertLogs("kvant.dynamo", "WARNING") as told:
        for _ in range(2):
            await answer(engine, sampling_options={"length_penalty": 1.5, "use_beam_search": False, "best_of": None}, stop_conditions={"max_tokens": 1})
    ok(len(told.output) == 1 and "length_penalty: found 1.5" in told.output[0], f"{told.output}")


async def check_abort(engine):
    """A client that leaves ends its request in the server."""
    context, n = Context("long"), 0
    async for _ in engine.generate({"token_ids": IDS, "stop_conditions": {"max_tokens": 700, "ignore_eos": True}}, context):
        n += 1
        if n == 2:
            context.stopped = True
            await engine.abort(context)
    for _ in range(100):
        running = re.search(r"^kvant:num_requests_running\S* (\d+)", server(engine, "/metrics"), re.M).group(1)
        if running == "0":
            break
        await asyncio.sleep(0.1)
    ok(n < 100 and running == "0" and not engine.answers, f"{n} parts after abort, {running} requests run")


async def check_events(engine):
    """The server's events come from the socket that Dynamo is told of."""
    source = (await engine.kv_event_sources())[0]
    reader = kv_events.Reader(int(source.endpoint.rsplit(":", 1)[1]))
    await asyncio.sleep(0.5)        # its subscription is on its way
    ids = [i + 1 for i in IDS]
    await answer(engine, token_ids=ids, stop_conditions={"max_tokens": 1})
    for _ in range(100):
        blocks = kv_events.Blocks()
        for m in list(reader.messages):
            blocks.take(m[2])
        if blocks.matched(ids) == 192:
            break
        await asyncio.sleep(0.05)
    ok(blocks.matched(ids) == 192 and not blocks.faults, f"{blocks.matched(ids)} tokens of 200 by events, {blocks.faults}")


async def check_engine(found):
    from dynamo.llm.exceptions import EngineShutdown
    from kvant.dynamo import KvantEngine
    check_names(found, KvantEngine)
    engine, config = await KvantEngine.from_args(["-m", MODEL, "--tokenizer", "/tokenizer", "--discovery-backend", "file", "--", "-c", "1024", "-np", "2", "-t", "2"])
    ok(config.discovery_backend == "file" and config.namespace == "dynamo" and config.model_name == "/tokenizer", config)
    try:
        told = await engine.start(1)
        ok(told.model == "/tokenizer" and told.served_model_name == "novella-hybrid-q8_0" and told.llm.context_length == 1024 and
           told.llm.kv_cache_block_size == 64 and told.llm.max_num_seqs == 2, told)
        await check_answers(engine)
        await check_refusals(engine)
        await check_unknown(engine)
        await check_abort(engine)
        await check_events(engine)
    finally:
        await engine.cleanup()
        await engine.cleanup()
    try:
        await answer(engine)
        ok(False, "an answer after the end")
    except EngineShutdown as e:
        ok("not running" in str(e), e)


def main():
    path = sorted(glob.glob(os.path.join(HERE, "interfaces", "dynamo-*.json")))[-1]
    asyncio.run(check_engine(interface(dynamo_interface, path, REAL)))
    return ended("try_dynamo")


if __name__ == "__main__":
    sys.exit(main())
