#!/usr/bin/env python3
"""packages: outlines openai

Outlines, as a client of OpenAI's API and of vLLM's: texts, streams, types."""
import openai
import outlines
import pydantic
import rig


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


def models(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
    return outlines.from_openai(client, "m"), outlines.from_vllm(client, "m")


def chat(url):
    for m in models(url):
        assert m("hello") == rig.HELLO
        assert "".join(m.stream("hello")) == rig.HELLO


def typed(url):
    for m in models(url):
        assert Weather.model_validate_json(m("In JSON, please.", Weather)) == Weather(town="Rome", rainy=7)
    vllm = models(url)[1]
    assert vllm("hello", outlines.regex("[a-c]{3}x"))[3] == "x"
    assert vllm("hello", outlines.cfg('root ::= "north" | "south"')) in ("north", "south")


rig.run("outlines_client", chat, typed)
