#!/usr/bin/env python3
"""packages: google-adk litellm

Google's Agent Development Kit over litellm: a tool's loop, streamed and not, ten turns, an answer with a schema beside a tool."""
import asyncio
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
import pydantic     # noqa: E402
import rig          # noqa: E402
from google.adk.agents import LlmAgent, RunConfig   # noqa: E402
from google.adk.agents.run_config import StreamingMode   # noqa: E402
from google.adk.models.lite_llm import LiteLlm      # noqa: E402
from google.adk.runners import InMemoryRunner       # noqa: E402
from google.genai import types      # noqa: E402


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


async def ask(runner, texts, **config):
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    said = []
    for t in texts:
        content = types.Content(role="user", parts=[types.Part(text=t)])
        last = ""
        async for e in runner.run_async(user_id="u", session_id=session.id, new_message=content, run_config=RunConfig(**config)):
            assert not e.error_code, (e.error_code, e.error_message)
            if e.content and not e.partial:
                last = "".join(p.text or "" for p in e.content.parts) or last
        said.append(last)
    return said


def agents(url):
    for model, key in (("openai/m", "/v1"), ("anthropic/m", "")):
        yield lambda **a: InMemoryRunner(LlmAgent(name="a", model=LiteLlm(model=model, api_base=url + key, api_key="k"), **a), app_name="t")


def chat(url):
    for make in agents(url):
        assert asyncio.run(ask(make(), ["hello"])) == [rig.HELLO]


def tools(url):
    for make in agents(url):
        rig.called.clear()
        assert asyncio.run(ask(make(tools=[rig.get_weather]), [f"The weather of day {i}?" for i in range(10)])) == [rig.RAIN] * 10
        assert rig.called == [("Paris", 3)] * 10, rig.called


def streams(url):
    for make in agents(url):
        got = asyncio.run(ask(make(tools=[rig.get_weather]), ["The weather?"], streaming_mode=StreamingMode.SSE))
        assert got == [rig.RAIN], got


def typed(url):
    for make in agents(url):
        for more in ({}, {"tools": [rig.get_weather]}):
            got = asyncio.run(ask(make(output_schema=Weather, instruction="Answer in JSON.", **more), ["The weather?"]))
            assert Weather.model_validate_json(got[0]), got     # over Anthropic's API litellm makes a forced tool of the schema


rig.run("google_adk", chat, tools, streams, typed)
