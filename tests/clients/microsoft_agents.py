#!/usr/bin/env python3
"""packages: agent-framework-core agent-framework-openai

Microsoft's Agent Framework: a tool's loop, streamed and not, ten turns, a typed answer beside a tool."""
import asyncio

import pydantic
import rig

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


def clients(url):
    return [c(model="m", api_key="k", base_url=url + "/v1") for c in (OpenAIChatClient, OpenAIChatCompletionClient)]


def chat(url):
    for c in clients(url):
        assert asyncio.run(Agent(client=c).run("hello")).text == rig.HELLO


def tools(url):
    async def ten(agent):
        session, said = agent.create_session(), []
        for i in range(10):
            said.append((await agent.run(f"The weather of day {i}?", session=session)).text)
        return said
    for c in clients(url):
        rig.called.clear()
        got = asyncio.run(ten(Agent(client=c, tools=[rig.get_weather])))
        assert got == [rig.RAIN] * 10 and len(rig.called) == 10, (got, rig.called)


def streams(url):
    async def one(agent):
        stream = agent.run("The weather?", stream=True)
        parts = [u async for u in stream]
        assert len(parts) > 5, parts
        return (await stream.get_final_response()).text
    for c in clients(url):
        got = asyncio.run(one(Agent(client=c, tools=[rig.get_weather])))
        assert got == rig.RAIN, got


def typed(url):
    for c in clients(url):
        r = asyncio.run(Agent(client=c, instructions="Answer in JSON.", tools=[rig.get_weather]).run("The weather?", options={"response_format": Weather}))
        assert r.value == Weather(town="Rome", rainy=7), r


rig.run("microsoft_agents", chat, tools, streams, typed)
