#!/usr/bin/env python3
"""request_fields.py: the fields of requests that the `openai` and `anthropic` packages publish, from their type definitions.

    python3 tools/request_fields.py > tests/fields/published.txt       (needs both packages)

A line: package, its version, the route, the field's path.  Items of lists and members of a union stand in brackets, with their
`type` where they have one: input[message].content[input_text].text.  What an object holds whose names are free (a schema, metadata) is
no field.  check_server_fields wants a decision of src/server/request/fields.def for each line."""
import sys
import typing

import typing_extensions

DEPTH = 7
ROUTES = [("openai", "completions", "openai.types.completion_create_params", "CompletionCreateParamsBase"),
          ("openai", "completions", "openai.types.completion_create_params", "CompletionCreateParamsStreaming"),
          ("openai", "chat", "openai.types.chat.completion_create_params", "CompletionCreateParamsBase"),
          ("openai", "chat", "openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
          ("openai", "responses", "openai.types.responses.response_create_params", "ResponseCreateParamsBase"),
          ("openai", "responses", "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
          ("openai", "responses", "openai.types.responses.input_token_count_params", "InputTokenCountParams"),
          ("openai", "embeddings", "openai.types.embedding_create_params", "EmbeddingCreateParams"),
          ("anthropic", "messages", "anthropic.types.message_create_params", "MessageCreateParamsBase"),
          ("anthropic", "messages", "anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
          ("anthropic", "messages", "anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
          ("anthropic", "messages", "anthropic.types.beta.message_create_params", "MessageCreateParamsBase"),
          ("anthropic", "messages", "anthropic.types.beta.message_create_params", "MessageCreateParamsStreaming")]


def bare(t):
    """Without Required, NotRequired, Annotated."""
    while typing.get_origin(t) in (typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated):
        t = typing.get_args(t)[0]
    return t


def type_name(t):
    """The `type` of an object where it is one word."""
    t = bare(hints(t).get("type"))
    words = typing.get_args(t) if typing.get_origin(t) in (typing.Literal, typing_extensions.Literal) else ()
    return words


def hints(t):
    return typing.get_type_hints(t, include_extras=True)


def members(t):
    """The objects and lists that a value may be."""
    t = bare(t)
    origin = typing.get_origin(t)
    if typing_extensions.is_typeddict(t):
        yield t, False
    elif origin is typing.Union or origin is getattr(__import__("types"), "UnionType", None):
        for a in typing.get_args(t):
            yield from members(a)
    elif isinstance(t, type) and hasattr(t, "model_fields"):
        return          # an answer's object, sent back: its params twin is in the same union
    elif origin in (list, typing.get_origin(typing.Iterable[int]), typing.get_origin(typing.Sequence[int])):
        for a in typing.get_args(t):
            for m, _ in members(a):
                yield m, True


def walk(t, path, out, seen):
    if len(seen) > DEPTH or t in seen:
        return
    for name, hint in hints(t).items():
        at = f"{path}.{name}" if path else name
        out.add(at)
        for m, listed in members(hint):
            words = type_name(m)
            for inner in [f"{at}[{w}]" for w in words] or [f"{at}[]" if listed else at]:
                walk(m, inner, out, seen + (t,))


def main():
    lines = set()
    for package, route, module, name in ROUTES:
        m = __import__(module, fromlist=[name])
        out = set()
        walk(getattr(m, name), "", out, ())
        lines |= {f"{package} {__import__(package).__version__} {route} {x}" for x in out}
    sys.stdout.write("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
