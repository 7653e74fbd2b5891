"""kvant as a worker of NVIDIA Dynamo: a process that starts `kvant serve` and registers it, by Dynamo's own engine interface
(dynamo.common.backend, package ai-dynamo 1.6).

    python -m kvant.dynamo -m model.gguf --tokenizer DIR --discovery-backend file -- -c 32768 -np 8

DIR is the model's folder of Hugging Face (config.json, tokenizer.json, tokenizer_config.json): Dynamo's frontend makes the tokens and writes the
chat; what stands behind `--` are options of `kvant serve`.  The server's KV events go to Dynamo's router as they are."""
import argparse
import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from dynamo.common.backend import EngineConfig, LlmRegistration, LLMEngine, WorkerConfig
from dynamo.common.backend.publisher import ZmqSource
from dynamo.common.backend.run import run
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument, Unknown, WorkerUnavailable

from .ops import PAGE
from .server import Server

#: Dynamo's sampling options -> fields of /completion.
SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "seed": "seed", "presence_penalty": "presence_penalty",
            "frequency_penalty": "frequency_penalty", "repetition_penalty": "repeat_penalty"}
STOPPING = {"max_tokens": "n_predict", "min_tokens": "min_tokens", "ignore_eos": "ignore_eos"}
GUIDED = {"json": "json_schema", "grammar": "grammar"}
#: What Dynamo or this file does itself: texts to stop at, tokens that end the answer (the model's own), one choice.
ELSEWHERE = {"stop", "stop_token_ids_hidden", "n", "guided_decoding"}
FINISH = {"eos": "stop", "word": "stop", "limit": "length"}


_told: set[str] = set()


def tell_unknown(found: dict[str, Any]) -> None:
    """An option that asks for something, and that no field of /completion takes, has no effect: the log says so once."""
    for name in sorted(set(found) - set(SAMPLING) - set(STOPPING) - ELSEWHERE - _told):
        if found[name]:
            _told.add(name)
            logging.getLogger(__name__).warning("%s: found %r, has no effect: kvant serve has no such option", name, found[name])


def body_of(request: dict[str, Any]) -> dict[str, Any]:
    """Dynamo's request -> a body of POST /completion.  Stop strings are Dynamo's own: it has the text."""
    sampling, stopping = request.get("sampling_options") or {}, request.get("stop_conditions") or {}
    guided = {k: v for k, v in (sampling.get("guided_decoding") or {}).items() if v is not None}
    if (sampling.get("n") or 1) != 1:
        raise InvalidArgument(f"n: {sampling['n']} found, 1 wanted: a worker of kvant gives one choice")
    if odd := sorted(set(guided) - set(GUIDED)):
        raise InvalidArgument(f"guided_decoding: {', '.join(odd)} found, {' or '.join(GUIDED)} wanted")
    tell_unknown({**sampling, **stopping})
    out: dict[str, Any] = {"prompt": request["token_ids"], "stream": True, "return_tokens": True}
    for names, found in ((SAMPLING, sampling), (STOPPING, stopping), (GUIDED, guided)):
        out.update({ours: found[theirs] for theirs, ours in names.items() if found.get(theirs) is not None})
    logprobs = (request.get("output_options") or {}).get("logprobs")
    if logprobs is not None:
        out["n_probs"] = max(int(logprobs), 1)
    return out


def chunk_of(part: dict[str, Any]) -> dict[str, Any]:
    """A part of /completion's stream -> Dynamo's chunk; the last one says why the answer ended."""
    out: dict[str, Any] = {"token_ids": part["tokens"], "index": 0}
    if probs := part.get("completion_probabilities"):
        out["log_probs"] = [p["logprob"] for p in probs]
        out["top_logprobs"] = [[{"rank": i + 1, "token_id": t["id"], "token": t["token"], "logprob": t["logprob"]}
                                for i, t in enumerate(p["top_logprobs"])] for p in probs]
    if part["stop"]:
        prompt, made = part["tokens_evaluated"], part["tokens_predicted"]
        out["finish_reason"] = FINISH[part["stop_type"]]
        out["completion_usage"] = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made,
                                   "prompt_tokens_details": {"cached_tokens": part["tokens_cached"]}}
    return out


def refusal(status: int, text: str) -> Exception:
    """kvant's error as Dynamo's: the client's fault, a worker that is full (Dynamo asks another one), or neither."""
    try:
        text = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        pass
    kind = InvalidArgument if 400 <= status < 500 and status != 429 else WorkerUnavailable if status in (429, 503) else Unknown
    return kind(f"kvant serve: {status}: {text}")       # type: ignore[no-any-return, unused-ignore]


class KvantEngine(LLMEngine):       # type: ignore[misc, unused-ignore]
    """One `kvant serve` behind Dynamo's interface of an engine."""

    def __init__(self, model: str, tokenizer: str, name: str | None, options: list[str]) -> None:
        self.model, self.tokenizer, self.name, self.options = model, tokenizer, name, options
        self.server: Server | None = None
        self.http: aiohttp.ClientSession | None = None
        self.events = ""
        self.answers: dict[str, aiohttp.ClientResponse] = {}

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple["KvantEngine", Any]:
        """The engine and Dynamo's settings, of a command line."""
        a, options = arguments(sys.argv[1:] if argv is None else argv)
        config = WorkerConfig(namespace=a.namespace, component=a.component, endpoint=a.endpoint, model_name=a.tokenizer, served_model_name=a.name,
                              discovery_backend=a.discovery_backend, request_plane=a.request_plane, event_plane=a.event_plane,
                              tool_call_parser=a.tool_call_parser, reasoning_parser=a.reasoning_parser)
        return cls(a.model, a.tokenizer, a.name, options), config

    async def start(self, worker_id: int) -> Any:
        """Starts the server, and tells what Dynamo's router wants to know of it."""
        self.events = f"tcp://127.0.0.1:{free_port()}"
        self.server = await asyncio.to_thread(Server, self.model, *self.options, "--kv-events", self.events)
        self.http = aiohttp.ClientSession(self.server.url, timeout=aiohttp.ClientTimeout(total=None))
        async with self.http.get("/v1/models") as r:
            told = (await r.json())["data"][0]
        async with self.http.get("/props") as r:
            props = await r.json()
        name = self.name or str(told["id"])
        return EngineConfig(model=self.tokenizer, served_model_name=name, llm=LlmRegistration(
            context_length=told["max_model_len"], kv_cache_block_size=PAGE, max_num_seqs=props["total_slots"]))

    async def kv_event_sources(self) -> list[Any]:
        """The server's own socket: Dynamo reads its events."""
        return [ZmqSource(endpoint=self.events, dp_rank=0)]

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """Chunks of tokens, as the server makes them."""
        if self.http is None or self.server is None or self.server.process.poll() is not None:
            raise EngineShutdown("kvant serve is not running")
        try:
            async with self.http.post("/completion", json=body_of(request)) as r:
                if r.status != 200:
                    raise refusal(r.status, await r.text())
                self.answers[context.id()] = r
                async for line in r.content:
                    if line.startswith(b"data: {"):
                        yield self._part(json.loads(line[6:]))
        except aiohttp.ClientError as e:
            if not context.is_stopped():
                raise EngineShutdown(f"kvant serve: the connection ended: {e}") from e
            yield {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
        finally:
            self.answers.pop(context.id(), None)

    @staticmethod
    def _part(part: dict[str, Any]) -> dict[str, Any]:
        if "error" in part:
            raise Unknown(f"kvant serve: {part['error'].get('message', part['error'])}")
        return chunk_of(part)

    async def abort(self, context: Any) -> None:
        """A client left: the server ends a request whose connection ends."""
        answer = self.answers.get(context.id())
        if answer is not None:
            answer.close()

    async def cleanup(self) -> None:
        """Ends the server; safe to call twice, and after a start that failed."""
        if self.http is not None:
            await self.http.close()
        if self.server is not None:
            await asyncio.to_thread(self.server.close)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Dynamo's options, and behind `--` those of kvant serve."""
    at = argv.index("--") if "--" in argv else len(argv)
    p = argparse.ArgumentParser(prog="python -m kvant.dynamo", description="kvant serve as a worker of NVIDIA Dynamo; behind -- its own options")
    p.add_argument("-m", "--model", required=True, help="GGUF file")
    p.add_argument("--tokenizer", required=True, help="the model's folder of Hugging Face: config.json, tokenizer.json, tokenizer_config.json")
    p.add_argument("--name", help="the model's name for clients (default: that of kvant serve)")
    p.add_argument("--namespace", default="dynamo")
    p.add_argument("--component", default="backend")
    p.add_argument("--endpoint", default="generate")
    p.add_argument("--discovery-backend", default="etcd", choices=("etcd", "file", "mem", "kubernetes"))
    p.add_argument("--request-plane", default="tcp", choices=("tcp", "nats"))
    p.add_argument("--event-plane", choices=("zmq", "nats"))
    p.add_argument("--tool-call-parser", help="Dynamo's parser of tool calls")
    p.add_argument("--reasoning-parser", help="Dynamo's parser of thoughts")
    return p.parse_args(argv[:at]), argv[at + 1:]


if __name__ == "__main__":
    run(KvantEngine)
