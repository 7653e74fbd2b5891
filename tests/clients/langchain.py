#!/usr/bin/env python3
"""packages: langchain-openai langchain-anthropic langchain-ollama

LangChain's three clients: chat, stream, a tool's loop, typed answers; embeddings of OpenAI and Ollama."""
import pydantic
import rig
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


class Weather(pydantic.BaseModel):
    """A town's weather."""
    town: str
    rainy: int


def models(url):
    return [ChatOpenAI(base_url=url + "/v1", api_key="k", model="m", max_retries=0),
            ChatOpenAI(base_url=url + "/v1", api_key="k", model="m", max_retries=0, use_responses_api=True),
            ChatAnthropic(base_url=url, api_key="k", model="m", max_retries=0, max_tokens=400), ChatOllama(base_url=url, model="scripted")]


def chat(url):
    for m in models(url):
        assert m.invoke("hello").text == rig.HELLO, m
        parts = list(m.stream("hello"))
        assert "".join(p.text for p in parts) == rig.HELLO and len(parts) > 2, (m, parts)


def tools(url):
    for m in models(url):
        bound, messages = m.bind_tools([tool(rig.get_weather)]), []
        for turn in range(5):
            messages.append(HumanMessage(f"The weather of day {turn}?"))
            for streamed in (False, True):
                r = None
                for part in bound.stream(messages) if streamed else [bound.invoke(messages)]:
                    r = part if r is None else r + part
                assert [(t["name"], t["args"]) for t in r.tool_calls] == [("get_weather", {"city": "Paris", "days": 3})], (m, r)
            messages += [r, ToolMessage("rain", tool_call_id=r.tool_calls[0]["id"])]
            r = bound.invoke(messages)
            assert r.text == rig.RAIN, (m, r)
            messages.append(r)


def typed(url):
    for m in models(url):
        r = m.with_structured_output(Weather, method="json_schema").invoke("In JSON, please.")
        assert r == Weather(town="Rome", rainy=7), (m, r)
        r = m.with_structured_output(Weather).invoke("In JSON, please.")
        assert isinstance(r, Weather), (m, r)


def embeddings(url):
    for e in (OpenAIEmbeddings(base_url=url + "/v1", api_key="k", model="m", max_retries=0, check_embedding_ctx_length=False),
              OpenAIEmbeddings(base_url=url + "/v1", api_key="k", model="m", max_retries=0, tiktoken_enabled=False, check_embedding_ctx_length=False),
              OllamaEmbeddings(base_url=url, model="scripted")):
        assert len(e.embed_query("a storm")) == 256, e
        assert len(e.embed_documents([f"text {i}" for i in range(600)])) == 600, e


rig.run("langchain", chat, tools, typed, embeddings)
