#!/usr/bin/env python3
"""packages: openai-agents

OpenAI's Agents SDK over /v1/chat/completions and /v1/responses: a tool in an agent's loop, streamed and not; tools beside a typed answer; a
conversation of ten turns."""
import asyncio

import pydantic
import rig
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


def models(url):
    client = AsyncOpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
    return [OpenAIChatCompletionsModel(model="m", openai_client=client), OpenAIResponsesModel(model="m", openai_client=client)]


def chat(url):
    for m in models(url):
        r = Runner.run_sync(Agent(name="a", instructions="Be kind.", model=m), "hello")
        assert r.final_output == rig.HELLO, r.final_output


def tools(url):
    for m in models(url):
        rig.called.clear()
        r = Runner.run_sync(Agent(name="a", model=m, tools=[function_tool(rig.get_weather)]), "The weather?")
        assert r.final_output == rig.RAIN and rig.called == [("Paris", 3)], (r.final_output, rig.called)


def streams(url):
    async def one(m):
        r = Runner.run_streamed(Agent(name="a", model=m, tools=[function_tool(rig.get_weather)]), "The weather?")
        kinds = [e.type async for e in r.stream_events()]
        assert r.final_output == rig.RAIN and "raw_response_event" in kinds, (r.final_output, kinds)
    for m in models(url):
        asyncio.run(one(m))


def typed(url):
    for m in models(url):
        rig.called.clear()
        r = Runner.run_sync(Agent(name="a", instructions="Answer in JSON.", model=m, tools=[function_tool(rig.get_weather)], output_type=Weather), "The weather?")
        assert r.final_output == Weather(town="Rome", rainy=7) and rig.called, r.final_output


def turns(url):
    for m in models(url):
        agent, items = Agent(name="a", model=m, tools=[function_tool(rig.get_weather)], model_settings=ModelSettings(temperature=0)), []
        for turn in range(10):
            r = Runner.run_sync(agent, items + [{"role": "user", "content": f"And {turn}?"}])
            items = r.to_input_list()
        assert r.final_output == rig.RAIN and len(items) == 40, (len(items), items[-3:])


rig.run("openai_agents", chat, tools, streams, typed, turns)
