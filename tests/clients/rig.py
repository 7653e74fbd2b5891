"""rig: what the scripts of tests/clients share: a server, a tool, and a model that calls it.  The model is scripted (tests/support/scripted.py): asked
something beside tools it calls get_weather; behind the tool's result it answers; a conversation with the word JSON gets the answer as an object."""
import os
import re
import sys
import tempfile
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
for folder in ("", "support"):
    sys.path.append(os.path.join(ROOT, "tests", folder))
import scripted     # noqa: E402
from serve import Checks, Server    # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
RAIN, OBJECT, HELLO = "It will rain in Paris for three days.", '{"town": "Rome", "rainy": 7}', "Good morning to all of you!"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
# The middle part is there for the server, which reads from it how calls are written.
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role + ': ' + (m.content or '') }}"
            "{% if m.tool_calls %}{% for t in m.tool_calls %}{{ '<tool_call>\\n{\"name\": \"' + t.function.name + '\", \"arguments\": ' + t.function.arguments | tojson"
            " + '}\\n</tool_call>' }}{% endfor %}{% endif %}{{ '<|im_end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{% set ns = namespace(json=false) %}{% for m in messages %}{% if 'JSON' in (m.content or '') %}{% set ns.json = true %}"
            "{% endif %}{% endfor %}{% if tools and messages[-1].role != 'tool' %}<|call|>{% elif ns.json %}<|object|>{% elif messages[-1].role == 'tool' %}<|rain|>"
            "{% else %}<|hello|>{% endif %}{% endif %}")
ADDRESS = "http://127.0.0.1:8686"
called = []


def get_weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: name of the city
        days: how many days
    """
    called.append((city, days))
    return f"rain in {city}"


def reuse(url, before=(0, 0)):
    """(prompt tokens, of them from the cache) of all requests since `before`."""
    with urllib.request.urlopen(url + "/metrics") as r:
        text = r.read().decode()
    now = [int(float(re.search(rf"^kvant:{x}_total(?:{{[^}}]*}})? (\S+)$", text, re.M).group(1))) for x in ("prompt_tokens", "prompt_tokens_cached")]
    return now[0] - before[0], now[1] - before[1]


def check_reuse(url, name, first):
    """At least 95 % of the prompt tokens behind the first turn's came from the cache."""
    prompt, cached = reuse(url, first)
    print(f"{name}: {prompt} prompt tokens after the first turn, {cached} from the cache: {100 * cached / prompt:.1f} %", flush=True)
    assert cached >= 0.95 * prompt, (prompt, cached)


def settings(page, url, section=""):
    """{file in the user's home: its text} of docs/use/clients/PAGE.md, so that what the page tells is what is run; section: of this heading alone."""
    with open(os.path.join(ROOT, "docs", "use", "clients", page + ".md"), encoding="utf-8") as f:
        text = f.read()
    part = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", text, re.M | re.S).group(1) if section else text
    found = re.findall(r"^`~/([^`]+)`:\n\n```\w*\n(.*?)^```", part, re.M | re.S)
    assert found and all(ADDRESS in body or "json" in name for name, body in found), (page, section, found)
    return {name: body.replace(ADDRESS, url) for name, body in found}


def settle(home, page, url, section=""):
    """Writes them."""
    for name, body in settings(page, url, section).items():
        os.makedirs(os.path.dirname(os.path.join(home, name)), exist_ok=True)
        with open(os.path.join(home, name), "w", encoding="utf-8") as f:
            f.write(body)


def template_of(says):
    """A last message with one of these words is answered first, by the text with its number."""
    branches = "".join(f"{{% {'elif' if i else 'if'} '{word}' in messages[-1].content %}}<|{i}|>" for i, word in enumerate(says or ()))
    return TEMPLATE.replace("{% if tools and", branches + "{% elif tools and") if says else TEMPLATE


def run(name, *checks, call=CALL, hello=HELLO, context=4096, words_of=None, says=None):
    """Each check gets the server's address, and fails by what it raises or by an assertion.  call: the tool's call, as the model writes it; says: {word
    of a message: answer}."""
    c = Checks(name)
    said = {f"<|{i}|>": text for i, text in enumerate((says or {}).values())}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scripted.gguf")
        scripted.make(path, {"<|call|>": call, "<|rain|>": RAIN, "<|object|>": OBJECT, "<|hello|>": hello, **said}, size=3, template=template_of(says),
                      words_of=words_of)
        with Server(BUILD, "-np", "4", "-c", str(context), "--temp", "0", model=path) as s:
            for check in checks:
                called.clear()
                try:
                    check(f"http://127.0.0.1:{s.port}")
                    c.ok(True, "")
                except Exception as e:      # noqa: BLE001: whatever a client raises is this test's failure
                    traceback.print_exc(limit=-3)
                    c.ok(False, f"{check.__name__}: {type(e).__name__}: {str(e)[:600]}")
    sys.exit(c.end())
