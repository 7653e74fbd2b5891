#!/usr/bin/env python3
"""packages: pydantic-ai-slim[openai]

Pydantic AI over two APIs (its client of Anthropic's raises before it sends anything with anthropic 2.14): a tool's loop, streamed and not, ten turns; typed answers by a schema and by a tool."""
import pydantic
import rig
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


def models(url):
    openai = OpenAIProvider(base_url=url + "/v1", api_key="k")
    return [OpenAIChatModel("m", provider=openai), OpenAIResponsesModel("m", provider=openai)]


def chat(url):
    for m in models(url):
        assert Agent(m).run_sync("hello").output == rig.HELLO, m


def tools(url):
    for m in models(url):
        agent, history = Agent(m, tools=[rig.get_weather]), []
        for turn in range(10):
            r = agent.run_sync(f"The weather of day {turn}?", message_history=history)
            assert r.output == rig.RAIN, (m, r.output)
            history = r.all_messages()
        assert len(history) == 40, len(history)


def streams(url):
    for m in models(url):
        with Agent(m, tools=[rig.get_weather]).run_stream_sync("The weather?") as r:
            got = list(r.stream_text(delta=True)) if hasattr(r, "stream_text") else [r.get_output()]
        assert "".join(got) == rig.RAIN, (m, got)


def typed(url):
    for m in models(url):
        r = Agent(m, output_type=NativeOutput(Weather)).run_sync("In JSON, please.")
        assert r.output == Weather(town="Rome", rainy=7), (m, r.output)


rig.run("pydantic_agents", chat, tools, streams, typed)
