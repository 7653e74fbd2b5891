#!/usr/bin/env python3
"""packages: strands-agents openai anthropic

AWS's Strands: an agent with a tool, ten turns, a typed answer; over OpenAI's and Anthropic's API."""
import pydantic
import rig
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel


class Weather(pydantic.BaseModel):
    """A town's weather."""
    town: str
    rainy: int


def models(url):
    return [OpenAIModel(client_args={"base_url": url + "/v1", "api_key": "k"}, model_id="m"),
            OpenAIResponsesModel(client_args={"base_url": url + "/v1", "api_key": "k"}, model_id="m"),
            AnthropicModel(client_args={"base_url": url, "api_key": "k"}, model_id="m", max_tokens=400)]


def text(r):
    return "".join(b.get("text", "") for b in r.message["content"])


def chat(url):
    for m in models(url):
        assert text(Agent(model=m, callback_handler=None)("hello")) == rig.HELLO, m


def tools(url):
    for m in models(url):
        agent = Agent(model=m, tools=[tool(rig.get_weather)], callback_handler=None)
        for turn in range(10):
            assert text(agent(f"The weather of day {turn}?")) == rig.RAIN, (m, agent.messages)
        assert len(agent.messages) == 40 and len(rig.called) >= 10, len(agent.messages)


def typed(url):
    for m in models(url):
        r = Agent(model=m, callback_handler=None)("In JSON, please.", structured_output_model=Weather)
        assert isinstance(r.structured_output, Weather), (m, r)


rig.run("strands_agents", chat, tools, typed)
