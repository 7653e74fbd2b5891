#!/usr/bin/env python3
"""packages: guidance openai

Guidance, which sends its grammars to servers of OpenAI's API: a chat, a stop, a schema."""
import guidance
import pydantic
import rig


class Weather(pydantic.BaseModel):
    town: str
    rainy: int


def model(url):
    return guidance.models.OpenAI("m", base_url=url + "/v1", api_key="k", echo=False)


def chat(url):
    lm = model(url)
    with guidance.user():
        lm += "hello"
    with guidance.assistant():
        lm += guidance.gen("said", max_tokens=60)
    assert lm["said"] == rig.HELLO, lm["said"]


def typed(url):
    lm = model(url)
    with guidance.user():
        lm += "In JSON, please."
    with guidance.assistant():
        lm += guidance.json("said", schema=Weather)
    assert Weather.model_validate_json(lm["said"]) == Weather(town="Rome", rainy=7), lm["said"]


rig.run("guidance_client", chat, typed)
