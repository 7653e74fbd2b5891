#!/usr/bin/env python3
"""packages: axe-playwright-python

axe-core (the package ships it) reads the page in chromium: two sizes, both themes, without and with a chat, each panel open.  Nothing it calls a
violation is left.  KVANT_SCREENSHOTS=FOLDER keeps pictures."""
import importlib.util
import json
import os
import tempfile

import rig
from browser import Browser, find_browser

ANSWER = ("# A list\n\n1. *one*\n2. `two` and [a link](https://example.org)\n\n> quoted, \\(a^2 + b^2\\)\n\n```c\nint main(void) { return 0; }  /* note */\n```\n\n"
          "| left | right |\n|---|---|\n| 3 | 4 |\n")
AXE = """axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify([r.passes.length, r.violations.map(v => [v.id, v.impact, v.nodes.map(
    n => [n.target.join(' '), (n.any[0] || n.all[0] || n.none[0] || {}).message])])]))"""
SIZES = (("wide", 1280, 860, False), ("phone", 360, 740, True))


def axe_source():
    folder = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
    with open(os.path.join(folder, "axe.min.js"), encoding="utf-8") as f:
        return f.read()


def look(b, source, where, found):
    b.screenshot("axe-" + where)
    b.call("Runtime.evaluate", expression=source)
    passes, violations = json.loads(b.call("Runtime.evaluate", expression=AXE, awaitPromise=True, returnByValue=True)["result"]["value"])
    found += [(where, *v) for v in violations]
    return passes


def click(b, what):
    b.js(f"document.querySelector('{what}').click()")


def panels(b, source, where, found):
    """Each panel, opened and closed again."""
    passes = 0
    for panel, close in (("settings", "Escape"), ("live", "Escape"), ("side", "Escape")):
        click(b, f"#{panel}button")
        passes += look(b, source, f"{where}-{panel}", found)
        b.press(close)
    return passes


def page(url):
    source, found, passes, states = axe_source(), [], 0, 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        b = Browser(find_browser(), folder)
        try:
            for size, width, height, mobile in SIZES:
                b.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
                for theme in ("light", "dark"):
                    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
                    b.call("Page.navigate", url=url)
                    assert b.wait("document.getElementById('status') && document.getElementById('status').innerText === 'connected'"), "no connection"
                    where = f"{size}-{theme}"
                    passes += look(b, source, where + "-empty", found)
                    click(b, "#clear")
                    b.js("document.getElementById('input').focus()")
                    b.type("Hello")
                    b.press("Enter")
                    assert b.wait("document.querySelectorAll('.message.assistant table').length", 60), b.js("document.getElementById('messages').innerText")
                    assert b.wait("document.getElementById('messages').getAttribute('aria-busy') !== 'true'", 60), "the answer does not end"
                    passes += look(b, source, where + "-chat", found) + panels(b, source, where, found)
                    states += 5
        finally:
            b.close()
    print(f"page_axe: {states} states of the page, {passes} rules passed, {len(found)} violations", flush=True)
    assert not found and passes > 20 * states, json.dumps(found, indent=1)


if find_browser():
    rig.run("page_axe", page, hello=ANSWER)
print("SKIP page_axe: no chromium found")
