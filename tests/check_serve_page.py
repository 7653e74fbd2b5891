#!/usr/bin/env python3
"""check_serve_page: the web page in headless Chromium: chats that are streamed, stopped, left, edited, answered again, reloaded, renamed and
deleted; settings, files, Markdown that tries to be HTML, thoughts, tool calls, errors, dark colours, a phone, the keyboard, a router; no request
to any other host, no error in the console.  Findings B2 (a new chat during an answer), B3 (a turn that failed), B4 (client libraries on a
page of another origin), B15 (what the prefix cache holds).  Without a browser it says SKIP.  KVANT_SCREENSHOTS=FOLDER keeps pictures."""
import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from browser import Browser, find_browser              # noqa: E402
from serve import ROOT, SLOW, Checks, Server, built           # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release")
C = Checks("check_serve_page")

SAY = "document.getElementById('input').value = {}; document.getElementById('form').requestSubmit(); true"
LAST = "(document.querySelector('.message.assistant:last-child .text') || {innerText: ''}).innerText"
IDLE = "document.getElementById('stop').disabled"
# Answers of a made-up model for what the demo model does not write: window.script has one list of events per request.
FAKE = r"""window.realFetch = window.realFetch || window.fetch; window.asked = [];
window.fetch = (url, o) => {
  if (!String(url).endsWith("/v1/chat/completions") || !window.script.length) return realFetch(url, o);
  asked.push(JSON.parse(o.body));
  const events = window.script.shift(), to = new TextEncoder();
  if (events === "refuse") return Promise.reject(new TypeError("Failed to fetch"));
  return Promise.resolve(new Response(new ReadableStream({ async start(c) {
    for (const e of events) { c.enqueue(to.encode("data: " + (typeof e === "string" ? e : JSON.stringify(e)) + "\n\n")); await new Promise(r => setTimeout(r, 5)); }
    c.close(); } })));
}; true"""


def settings(b, **values):
    b.js(f"localStorage.setItem('kvant-settings', {json.dumps(json.dumps(values))})")


def click(b, selector):
    return b.js(f"(e => e && (e.click(), true))(document.querySelector({json.dumps(selector)}))")


def press_button(b, label, within="document"):
    return b.js(f"(e => e && (e.click(), true))([...{within}.querySelectorAll('button')].filter(e => e.innerText === {json.dumps(label)}).pop())")


def count(b, selector):
    return b.js(f"document.querySelectorAll({json.dumps(selector)}).length")


def sent(b, n):
    """The bodies of the chat requests from the n-th on."""
    asked = [e["params"]["request"] for e in b.events if e["method"] == "Network.requestWillBeSent" and "/v1/chat/" in e["params"]["request"]["url"]]
    return [json.loads(r["postData"]) if "postData" in r else None for r in asked[n:]]


def texts(body):
    return [m["content"] for m in body["messages"]]


def letters(text):
    return "".join(c for c in text if c.isalnum())


def answered(n):
    """JavaScript: nothing runs, and n answers are there, none of them empty."""
    return f"{IDLE} && document.querySelectorAll('.message.assistant').length === {n} && {LAST}.trim().length > 0"


def check_chat(b):
    settings(b, max_tokens="48")
    b.js("document.getElementById('input').focus()")
    b.type("Tell me about")
    b.press("Enter", 8)
    b.type("the sea.")
    b.press("Enter")
    first = b.wait(LAST + ".trim().length > 3 && " + LAST, 30)
    C.ok(first, "text appears while it is generated")
    C.ok(b.js("document.querySelector('.message.user .plain').textContent") == "Tell me about\nthe sea.", "Shift+Enter begins a line, Enter sends")
    C.ok(b.wait("document.querySelector('.meta') && document.querySelector('.meta').innerText.includes('t/s')", 60), "timing line at the end")
    C.ok(first.strip()[:3] in b.js(LAST), "the text grew")
    C.ok("max_tokens" in sent(b, 0)[0] and "temperature" not in sent(b, 0)[0], "empty settings are not sent")


def check_live_and_stop(b, s):
    """An answer long enough for the live view's ticks of a second, then Escape."""
    click(b, "#clear")
    settings(b, max_tokens="15000")
    b.js(SAY.format("'<img src=x onerror=alert(1)> & a long story'"))
    C.ok(b.wait(LAST + ".length > 20", 30), "second answer begins")
    C.ok(b.wait("document.getElementById('tps').innerText !== '0.0' && document.querySelectorAll('#slots tbody tr').length", 30), "live view: a running slot")
    b.screenshot("running")
    C.ok(count(b, "#messages img") == 0, "text is never HTML")
    b.press("Escape")
    C.ok(b.wait(IDLE, 10), "stopped")
    C.ok(s.idle(5), "the server cancelled it")
    C.ok(b.js("document.getElementById('trouble').hidden") and "stopped" in b.js("document.querySelector('.meta').innerText"), "stopping is no error")
    n, before = len(sent(b, 0)), b.js(LAST)
    settings(b, max_tokens="8")
    C.ok(press_button(b, "Continue") and b.wait(answered(1), 30), "an answer that was stopped goes on")
    body = sent(b, n)[0]
    C.ok(body.get("continue_final_message") is True and letters(before)[-20:] in letters(texts(body)[1]) and
         len(b.js(LAST)) > len(before), f"Continue: {texts(body)}")


def check_two_chats(b, s):
    """B2: an answer that was left leaves nothing in the next chat, neither on the page nor in what is sent; it goes on by itself."""
    click(b, "#clear")
    settings(b, max_tokens="15000")
    b.js(SAY.format("'the first chat'"))
    C.ok(b.wait(LAST + ".length > 40", 30), "B2 an answer runs")
    n = len(sent(b, 0))
    settings(b, max_tokens="8")
    click(b, "#clear")
    b.js(SAY.format("'the second chat'"))
    C.ok(b.wait(answered(1), 30), "B2 the second chat is answered at once")
    b.js(SAY.format("'and more'"))
    C.ok(b.wait(answered(2), 30), "B2 and goes on")
    got = [texts(x) for x in sent(b, n)]
    C.ok(len(got) == 2 and got[0] == ["the second chat"] and len(got[1]) == 3 and got[1][::2] == ["the second chat", "and more"], f"B2 {got}")
    shown = b.js("document.getElementById('messages').innerText")
    C.ok("first chat" not in shown and count(b, ".message") == 4, f"B2 {shown!r}")
    C.ok(count(b, "#chats .running") == 1 and s.stats()["running"] == 1, "the first answer still runs")
    click(b, "#chats .running .title")
    C.ok(b.wait("!document.getElementById('stop').disabled && document.querySelector('.message.user').innerText.includes('the first chat')", 10), "back in the first chat")
    size = len(b.js(LAST))
    C.ok(size > 40 and b.wait(f"{LAST}.length > {size + 20}", 20), "and its answer grows")
    click(b, "#stop")
    C.ok(b.wait(IDLE, 10) and s.idle(5), "stopped there")


def check_after_error(b):
    """B3: a question that is refused is given back; the chat goes on without it."""
    b.js("[...document.querySelectorAll('#chats .title')].find(e => e.innerText === 'the second chat').click()")
    C.ok(b.wait("document.querySelectorAll('.message').length === 4", 10), "the second chat again")
    n = len(sent(b, 0))
    b.js(SAY.format("'sea '.repeat(30000) + 'THE END'"))
    C.ok(b.wait("!document.getElementById('trouble').hidden", 30), "B3 an error is shown")
    b.screenshot("error")
    said = b.js("document.getElementById('trouble').innerText")
    C.ok("16384" in said and "kvant serve -c" in said, f"B3 what is wrong, and what to do: {said!r}")
    C.ok(b.js("document.getElementById('input').value.endsWith('THE END')") and count(b, ".message") == 4, "B3 the text is back where it was written")
    b.js(SAY.format("'a short one'"))
    C.ok(b.wait(answered(3), 30), "B3 the next turn is answered")
    got = texts(sent(b, n + 1)[0])
    C.ok(got[::2] == ["the second chat", "and more", "a short one"] and len(got) == 5, f"B3 {[t[:40] for t in got]}")
    C.ok(b.js("document.getElementById('trouble').hidden"), "B3 no second error")


def check_edit(b):
    """Of three turns: the second answer again, then the first message edited; what follows is dropped, on the page and in what is sent."""
    n = len(sent(b, 0))
    press_button(b, "Again", "document.querySelectorAll('.message.assistant')[1]")
    C.ok(b.wait(answered(2), 30) and texts(sent(b, n)[0])[::2] == ["the second chat", "and more"], "Again")
    press_button(b, "Edit", "document.querySelectorAll('.message.user')[0]")
    C.ok(b.wait("document.activeElement.className === 'edit'", 5), "the field has the focus")
    b.press("Escape")
    C.ok(count(b, ".edit") == 0 and count(b, ".message") == 4, "Escape leaves the message as it was")
    press_button(b, "Edit", "document.querySelectorAll('.message.user')[0]")
    b.js("document.querySelector('.edit').value = 'an edited chat'")
    press_button(b, "Send", "document.querySelector('#messages')")
    C.ok(b.wait(answered(1), 30) and texts(sent(b, n + 1)[0]) == ["an edited chat"], f"Edit: {sent(b, n + 1)}")
    b.js("document.getElementById('input').focus()")
    b.press("ArrowUp")
    C.ok(b.js("document.activeElement.value") == "an edited chat", "ArrowUp edits the last message")
    b.press("Escape")


def drawn(b, text):
    """Milliseconds that a text takes to be drawn and laid out, and its HTML."""
    b.js(f"""window.drawn = 0; import(location.origin + '/markdown.js').then(m => {{ const e = document.createElement('div'), t = performance.now(); document.body.append(e);
        m.render(e, {json.dumps(text)}); e.offsetHeight; window.drawn = [performance.now() - t, e.innerHTML]; e.remove(); }}); true""")
    return b.wait("window.drawn", 20) or (1e9, "")


def check_formulas(b):
    """Formulas become MathML where KaTeX is built in; prices, code and formulas that KaTeX refuses stay as they are written."""
    if b.js("typeof window.katex") == "undefined":
        print("SKIP check_serve_page: formulas: this build has no katex.js")
        return
    click(b, "#clear")
    text = "Inline \\(a^2+b^2\\) and $x_1$.\n\n\\[\n\\frac{1}{2}\n\\]\n\n$$\\sum_i i$$\n\nIt costs $5 and $6, `\\(code\\)`, \\(\\nosuch{\\) and \\(\\href{javascript:alert(1)}{x}\\)"
    script(b, content(text))
    b.js(SAY.format("'formulas'"))
    C.ok(b.wait(answered(1) + " && document.querySelectorAll('.message math').length >= 4", 10), f"formulas: {b.js(LAST)}")
    C.ok(count(b, ".message .math.display math") == 2 and count(b, ".message math mfrac") == 1 and count(b, ".message math msup") == 2, "what they are")
    shown = b.js(LAST)
    C.ok("It costs $5 and $6" in shown and "\\(code\\)" in shown and "\\(\\nosuch{\\)" in shown and count(b, ".message a[href^=javascript]") == 0, shown)
    b.screenshot("formulas")
    bombs = ["\\edef\\a{xxxxxxxx}" + "\\edef\\a{\\a\\a}" * 12 + "\\a", "\\gdef\\a{x}\\a", "\\let\\a\\alpha\\a", "\\newcommand{\\a}{x}\\a", "\\verb\\a\\\\def\\b{x}\\b"]
    deep = ["\\" + name * (1990 // len(name)) for name in ("sqrt{", "overbrace{", "frac1{", "left(")]
    for formula in bombs + ["x" * 2001, "\\begin{matrix}" + "&" * 1900 + "\\end{matrix}"] + deep + [d + "}" * 400 for d in deep]:
        for text in (f"\\({formula}\\)", f"\\[\n{formula}\n\\]"):
            ms, shown = drawn(b, text)
            C.ok(ms < 1500 * SLOW and len(shown) < 100000, f"{formula[:30]}...: {ms} ms, {len(shown)} characters")
            C.ok("<math" not in shown or formula.startswith(tuple(deep)), f"{formula[:30]} is shown as it was written")


def check_versions(b):
    """What was answered anew is kept: ‹ and › show it again, and what is shown is what is sent."""
    click(b, "#clear")
    script(b, content("first answer"), content("second answer"), content("third answer"), content("another"))
    b.js(SAY.format("'question'"))
    C.ok(b.wait(answered(1), 30) and count(b, ".versions") == 0, "one version")
    press_button(b, "Again")
    C.ok(b.wait(answered(1) + f" && {LAST}.includes('second')", 10) and b.js("document.querySelector('.versions').innerText.replace(/\\s/g, '')") == "‹2/2›", "two versions")
    press_button(b, "‹")
    C.ok(b.wait(f"{LAST}.includes('first answer')", 5), "the first one again")
    b.js(SAY.format("'go on'"))
    C.ok(b.wait(answered(2), 30), "goes on behind it")
    C.ok(count(b, ".message") == 4, "four messages")
    press_button(b, "›")
    C.ok(b.wait(f"{LAST}.includes('second answer') && document.querySelectorAll('.message').length === 2", 5), "the other version has its own end")
    press_button(b, "Edit", "document.querySelectorAll('.message.user')[0]")
    b.js("document.querySelector('.edit').value = 'another question'")
    press_button(b, "Send", "document.querySelector('#messages')")
    C.ok(b.wait(answered(1) + f" && {LAST}.includes('another')", 10), "an edited question")
    b.call("Page.reload")
    C.ok(b.wait("document.querySelectorAll('.message').length === 2 && !!document.querySelector('.message.user .versions')", 20), "versions are kept")
    press_button(b, "‹")
    C.ok(b.wait("document.querySelector('.message.user .plain').innerText === 'question'", 5), "the question as it was")
    C.ok(b.js("document.activeElement.id") in ("input", ""), "the field has the focus at the start")


def check_list(b):
    """A file becomes a chat; the search finds titles and messages; a chat that another window answers is left alone."""
    text = json.dumps({"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "What is a Quokka?"}, {"role": "assistant", "content": "a small animal"}]})
    b.js(f"(() => {{ const d = new DataTransfer(); d.items.add(new File([{json.dumps(text)}], 'animals.json')); const f = document.getElementById('importfile'); f.files = d.files; f.dispatchEvent(new Event('change')); }})(); true")
    C.ok(b.wait("document.querySelectorAll('.message').length === 2 && document.querySelector('#chats [aria-current]').innerText === 'animals'", 10), "imported")
    b.js("(() => { const d = new DataTransfer(); d.items.add(new File(['{}'], 'bad.json')); const f = document.getElementById('importfile'); f.files = d.files; f.dispatchEvent(new Event('change')); })(); true")
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('bad.json: no conversation')", 10), "a file that is no conversation")
    search = "(t => {{ const s = document.getElementById('search'); s.value = t; s.dispatchEvent(new Event('input')); return true; }})('{}')"
    for typed, want in (("quokka", 1), ("animals", 1), ("no such text", 0)):
        b.js(search.format(typed))
        C.ok(b.wait(f"document.querySelectorAll('#chats li').length === {want}", 5), f"search: {typed}")
    b.js(search.format(""))
    C.ok(b.wait("document.querySelectorAll('#chats li').length > 3", 5), "all of them again")
    b.js("new BroadcastChannel('kvant').postMessage({id: location.hash.slice(1), running: true}); true")
    b.wait("false", 0.3)
    b.js(SAY.format("'me too'"))
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('answered in another window')", 5) and count(b, ".message") == 2, "another window's chat")
    b.js("document.getElementById('input').value = ''; true")
    click(b, "#chats li:has([aria-current]) .tools button:last-child")
    click(b, "#askyes")
    b.wait("!document.querySelector('.message')", 5)


GIVE = """(() => { const d = new DataTransfer(); d.items.add(new File([%s], '%s')); const f = document.getElementById('importfile'); f.files = d.files;
    f.dispatchEvent(new Event('change')); })(); true"""


def check_import(b):
    """Every field of a file is text or is refused by its name; no file, and no chat that is stored already, breaks the search or the start."""
    user, trouble = {"role": "user", "content": "hi"}, "document.getElementById('trouble').innerText"
    chats = count(b, "#chats li")
    for i, (message, said) in enumerate((({"role": "assistant", "content": 7}, "messages[1].content: found a number, wanted text"),
                                         ({"role": "assistant", "content": "", "reasoning_content": {"a": 1}}, "messages[1].reasoning_content: found an object"),
                                         ({"role": "assistant", "content": None, "tool_calls": {"a": 1}}, "messages[1].tool_calls: found an object, wanted an array"),
                                         ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "messages[1].tool_calls[0].function: found nothing"),
                                         ({"role": "narrator", "content": ""}, "messages[1].role: found narrator, wanted system"),
                                         ({"role": "tool", "content": "", "name": None}, ""))):
        b.js(GIVE % (json.dumps(json.dumps({"messages": [user, message]})), f"bad{i}.json"))
        if said:
            C.ok(b.wait(f"{trouble}.includes('bad{i}.json: ' + {json.dumps(said)})", 5), f"{said}: {b.js(trouble)}")
            C.ok(count(b, "#chats li") == chats, f"{said}: nothing is kept")
    C.ok(b.wait(f"document.querySelectorAll('#chats li').length === {chats} + 1", 5), "one file is a chat")
    null = {"messages": [{"role": "user", "content": [{"type": "text", "text": "from "}, {"type": "text", "text": "parts"}]}, {"role": "user"},
                         {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]}
    b.js(GIVE % (json.dumps(json.dumps(null)), "nulls.json"))
    C.ok(b.wait("document.querySelectorAll('.message').length === 3 && document.querySelector('.call pre').textContent === '{\\n  \"a\": 1\\n}'", 5), "nulls, parts, an object")
    b.js("""(async () => { const open = indexedDB.open('kvant'); await new Promise(r => { open.onsuccess = r; });
        const t = open.result.transaction(['heads', 'chats'], 'readwrite'), c = { id: 'broken', title: 'Broken', updated: Date.now() };
        t.objectStore('heads').put(c); t.objectStore('chats').put({ ...c, messages: [{ role: 'assistant', content: null, thought: { a: 1 } }, null] });
        await new Promise(r => { t.oncomplete = r; }); location.hash = 'broken'; location.reload(); })(); true""")
    C.ok(b.wait(f"{trouble}.includes('cannot be shown') && document.getElementById('status').innerText === 'connected'", 20), f"a broken chat at the start: {b.js(trouble)}")
    search = "(t => {{ const s = document.getElementById('search'); s.value = t; s.dispatchEvent(new Event('input')); return true; }})('{}')"
    b.js(search.format("from parts"))
    C.ok(b.wait("document.querySelectorAll('#chats li').length === 1", 5), "the search finds the others")
    b.js(search.format(""))
    b.wait(f"document.querySelectorAll('#chats li').length === {chats} + 3", 5)
    for left in range(3, 0, -1):
        click(b, "#chats li:first-child .tools button:last-child")
        click(b, "#askyes")
        C.ok(b.wait(f"document.querySelectorAll('#chats li').length === {chats} + {left} - 1", 5), "deleted")


def check_windows(b, url):
    """While another window answers, silent or not, this one does not write; that one closed or gone, it may."""
    first, b.session = b.session, None
    target = b.call("Target.createTarget", url=url)["targetId"]
    b.session = b.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    b.wait("document.getElementById('status') && document.getElementById('status').innerText === 'connected'", 20)
    b.js("window.fetch = (f => (u, o) => String(u).endsWith('/chat/completions') ? new Promise(() => {}) : f(u, o))(window.fetch); true")
    b.js(SAY.format("'a silent answer'"))
    there, other, b.session = b.wait("location.hash", 5), b.session, first
    C.ok(b.wait("document.querySelector('#chats .title').innerText === 'a silent answer'", 5), "the chat is in the list")
    click(b, "#chats .title")
    C.ok(b.wait("document.querySelector('.message.running') && location.hash", 5) == there, "its answer runs")
    later = "(t => {{ const f = Date.now; Date.now = () => f() + t; {}; Date.now = f; }})({}); true"
    refused = "document.getElementById('trouble').innerText.includes('answered in another window')"
    b.js(later.format(SAY.format("'me too'"), 30000))
    C.ok(b.wait(refused, 3) and count(b, ".message") == 2, "a silence of half a minute is no end")
    b.js("new BroadcastChannel('kvant').postMessage({id: location.hash.slice(1), running: false}); true")
    C.ok(b.wait("!document.querySelector('.message.running')", 3) and b.wait("!!document.querySelector('.message.running')", 4), "it is told again and again")
    b.session = other
    b.js("for (let i = 0; i < 9999; i++) clearInterval(i); true")      # a hidden window's are late
    b.session = first
    b.call("Page.reload")
    C.ok(b.wait("!!document.querySelector('.message.running')", 5), "and a window that is opened meanwhile asks for it")
    b.js(SAY.format("'me too'"))
    C.ok(b.wait(refused, 3), "it does not write either")
    b.session = None
    b.call("Target.closeTarget", targetId=target)
    b.session = first
    C.ok(b.wait("!document.querySelector('.message.running') && document.querySelector('.meta').innerText === 'stopped'", 5), "the window is closed: stopped")
    b.js("new BroadcastChannel('kvant').postMessage({id: location.hash.slice(1), running: true}); true")
    b.wait("false", 0.3)
    for ahead in (60000, 10000):
        b.js(f"document.getElementById('input').value = ''; Date.now = (f => () => f() + {ahead})(Date.now); true")
        b.wait("false", 1.5)
        if ahead == 60000:
            b.js(SAY.format("'me too'"))
            C.ok(b.wait(refused, 3) and count(b, ".message") == 2, "a minute without a word is no end: a hidden window's")
    b.js("document.getElementById('input').value = ''; true")
    script(b, content("mine"))
    b.js(SAY.format("'now I'"))
    C.ok(b.wait(f"{IDLE} && {LAST} === 'mine'", 5), "one that is gone without a word is given up")
    b.call("Page.reload")
    b.wait("document.querySelectorAll('.message').length === 4", 10)


def check_history(b, url):
    """What is kept: over a reload, and one that cuts an answer; renaming and deleting."""
    before = b.js("document.getElementById('messages').innerText")
    b.call("Page.reload")
    C.ok(b.wait("document.querySelectorAll('.message').length === 2", 20), "the chat is there after a reload")
    C.ok(b.js("document.getElementById('messages').innerText") == before and count(b, "#chats li") == 4, "as it was, and so is the list")
    settings(b, max_tokens="15000")
    b.js(SAY.format("'go on'"))
    C.ok(b.wait(LAST + ".length > 20 && document.querySelectorAll('.message').length === 4", 30), "an answer runs")
    b.js("new Promise(r => setTimeout(r, 1200))")
    b.wait("false", 1.3)
    b.call("Page.reload")
    C.ok(b.wait("document.querySelectorAll('.message').length === 4 && document.querySelectorAll('.meta')[1].innerText === 'stopped'", 20), "a reload stops it")
    C.ok(len(b.js(LAST)) > 5, "and keeps its beginning")
    settings(b, max_tokens="8")
    click(b, "#chats li:has([aria-current]) .tools button")
    b.js("document.getElementById('askvalue').value = 'A new name'; document.getElementById('askyes').click()")
    C.ok(b.wait("document.querySelector('#chats [aria-current]').innerText === 'A new name'", 5), "renamed")
    click(b, "#chats li:has([aria-current]) .tools button:last-child")
    C.ok(b.wait("document.getElementById('ask').open", 5), "asks before it deletes")
    press_button(b, "Cancel", "document.getElementById('ask')")
    C.ok(count(b, "#chats li") == 4, "not deleted")
    click(b, "#chats li:has([aria-current]) .tools button:last-child")
    click(b, "#askyes")
    C.ok(b.wait("document.querySelectorAll('#chats li').length === 3 && !document.querySelector('.message')", 5), "deleted")
    b.call("Page.navigate", url=url)
    C.ok(b.wait("document.querySelectorAll('#chats li').length === 3", 20), "for good")


def content(text, size=7, **more):
    """Events of an answer, cut anywhere."""
    return ([{"choices": [{"delta": {"content": text[i:i + size]}}]} for i in range(0, len(text), size)] +
            [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": 5, **more}}, "[DONE]"])


def script(b, *answers):
    b.js(FAKE)
    b.js(f"window.script = {json.dumps(answers)}; true")


MARKDOWN = """# Title *one*
A **bold** and _soft_ `code <b>` snake_case_name, 2 * 3 * 4, ~~gone~~
- one
  - deep `x`
- [x] done

3. three
4. four
   ```py
   x = "<i>"  # why
   ```

| a | b |
|---|--:|
| 1 | `2` |

> quote
> more

<script>window.broken = 1</script><img src="https://elsewhere.example/x.png" onerror="window.broken = 1">
![pixel](https://elsewhere.example/pixel.png) [bad](javascript:window.broken=1) [good](https://example.org/a_(b)) https://example.org/x.
```c
int open(void)"""


def check_markdown(b):
    click(b, "#clear")
    script(b, content(MARKDOWN))
    b.js(SAY.format("'Markdown'"))
    C.ok(b.wait(answered(1), 20), "an answer in Markdown")
    b.screenshot("markdown")
    shape = b.js("(f => f(document.querySelector('.message.assistant .text'), f))((e, f) => [...e.children].map(x => x.localName + (x.children.length ? '(' + f(x, f) + ')' : '')).join(' '))")
    code = "div(div(span button) pre(code{}))"
    want = ("h1(em) p(strong em code del) ul(li(span ul(li(span(code)))) li(input span)) ol(li(span) li(span " + code.format("(span span)") + ")) "
            "div(table(thead(tr(th th)) tbody(tr(td td(code))))) blockquote(p) p(a a a a) " + code.format("(span span)"))
    C.ok(shape == want, f"shape {shape}\nwant  {want}")
    C.ok(b.js("document.querySelector('.text ol').start") == 3 and b.js("document.querySelector('.text li code').textContent") == "x", "numbers, code")
    links = b.js("[...document.querySelectorAll('.text a')].map(a => a.href + ' ' + a.rel)")
    C.ok([x.split()[0] for x in links] == ["https://elsewhere.example/x.png", "https://elsewhere.example/pixel.png", "https://example.org/a_(b)", "https://example.org/x"] and
         all("noopener" in x for x in links), f"links {links}")
    C.ok(b.js("typeof window.broken") == "undefined" and count(b, ".text img, .text script") == 0 and
         "<script>window.broken" in b.js("document.querySelector('.text').innerText"), "HTML is text")
    b.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    hidden = b.js("[...document.querySelectorAll('.text *')].filter(e => !e.getClientRects().length).map(e => e.localName)")
    wide = b.js("[...document.querySelectorAll('.text > *')].filter(e => e.getBoundingClientRect().right > 360).map(e => e.localName)")
    C.ok(hidden == [] and wide == [], f"on a phone hidden: {hidden}, wide: {wide}")
    b.screenshot("phone-markdown")
    b.call("Emulation.clearDeviceMetricsOverride")


def check_hostile_markdown(b):
    """Texts that cost a careless parser minutes; and a cut anywhere gives what the whole gives."""
    for text in ("*" * 20000, "[" * 20000, "`" * 9999 + " " + "`" * 9998, "**a " * 9000, "[a](" * 9000, "> " * 9000 + "x", "- " * 9000 + "x", "# " + " " * 40000 + "x",
                 "|" * 9000 + "\n" + "|-" * 4500 + "|", "\n".join("  " * i + "- x" for i in range(300)), "<https://" * 5000, "_a" * 20000, "![" * 9000,
                 "\\( " * 60000 + "x" * 3000 + "\\)", "$a " * 30000, "\\[ " * 60000, "$a" * 20000 + " $", "$$\n" * 9000):
        ms = b.js(f"import(location.origin + '/markdown.js').then(m => {{ const t = performance.now(), e = document.createElement('div'); m.render(e, {json.dumps(text)}); "
                  "window.took = performance.now() - t + 0.01; }); window.took = 0; true") and b.wait("window.took", 20)
        C.ok(ms and ms < 2000, f"{text[:12]!r}...: {ms} ms")
    C.ok(b.wait(f"import(location.origin + '/markdown.js').then(m => {{ const t = {json.dumps(MARKDOWN)}, a = document.createElement('div'), e = document.createElement('div'); "
                "for (let i = 0; i <= t.length; i++) m.render(a, t.slice(0, i)); m.render(e, t); window.same = a.innerHTML === e.innerHTML ? 1 : 2; }); window.same", 10) == 1,
         "a text that grows is drawn like the whole")


def check_thoughts_and_calls(b):
    click(b, "#clear")
    call = [{"choices": [{"delta": {"reasoning_content": "I *think*"}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": "{\"city\":"}}]}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "\"Oslo\"}"}}]}}]},
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"]
    script(b, call, content("It is cold."))
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    settings(b, tools=json.dumps(tools), thinking="on", system="Be brief.", seed="7")
    b.js(SAY.format("'How cold is it?'"))
    C.ok(b.wait("!!document.querySelector('.results textarea')", 20), "asks for the result")
    C.ok(b.js("document.querySelector('.thought').open") is False and b.js("document.querySelector('.thought em').textContent") == "think", "the thought is folded")
    C.ok(b.js("document.querySelector('.call pre').textContent") == '{\n  "city": "Oslo"\n}', "the call's arguments")
    b.screenshot("calls")
    b.js("document.querySelector('.results textarea').value = '-20'")
    press_button(b, "Send results")
    C.ok(b.wait(answered(2), 20), "and goes on with it")
    first, second = b.js("asked")
    C.ok(first["tools"] == tools and first["enable_thinking"] is True and first["seed"] == 7 and "temperature" not in first, f"settings: {first}")
    C.ok(second["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "-20"} and second["messages"][-2]["tool_calls"][0]["id"] == "c1" and
         second["messages"][-2]["reasoning_content"] == "I *think*", f"history: {second['messages']}")
    script(b)
    settings(b, tools="[", max_tokens="8")
    b.js(SAY.format("'more'"))
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('Tools: found no JSON array')", 10), "a setting that cannot be sent")
    settings(b, max_tokens="8")
    script(b, "refuse")
    b.js(SAY.format("'more'"))
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('The server does not answer')", 10) and b.js("document.getElementById('input').value") == "more", "a server that is gone")
    script(b, content("half an ans")[:2])
    b.js(SAY.format("'more'"))
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('ended in the middle')", 10) and "half" in b.js(LAST), "a stream that breaks off")
    C.ok("the connection ended here" in b.js("[...document.querySelectorAll('.meta')].pop().innerText"), "and is told as such, not as stopped")


def check_files(b):
    click(b, "#clear")
    script(b, content("Read."))
    b.js("""(async () => { const give = (name, data) => { const t = new DataTransfer(); t.items.add(new File([data], name)); document.getElementById('chat').dispatchEvent(new DragEvent('drop',
        { dataTransfer: t, bubbles: true, cancelable: true })); }; give('notes.txt', 'a <b> note'); give('photo.bin', new Uint8Array([255, 0, 1])); give('large.log', 'x'.repeat(1100000)); })(); true""")
    C.ok(b.wait("document.getElementById('trouble').innerText.includes('large.log: 1.0 MiB, at most 1 MiB') || document.getElementById('trouble').innerText.includes('photo.bin: no text')", 5),
         f"files that are no text, or large: {b.js('document.getElementById(`trouble`).innerText')}")
    C.ok(b.wait("document.querySelectorAll('#files button').length === 1", 5) and b.js("document.getElementById('files').innerText").startswith("notes.txt"), "one is attached")
    b.js(SAY.format("'Read this'"))
    C.ok(b.wait(answered(1), 20), "answered")
    C.ok(b.js("asked[0].messages.map(m => m.content)") == ["File notes.txt:\n```\na <b> note\n```\n\nRead this"], f"{b.js('asked[0].messages')}")
    C.ok(count(b, "#files button") == 0 and b.js("document.querySelector('.message.user summary').innerText").startswith("notes.txt"), "the file is shown with the message")


def check_tabs(b, folder):
    """A chat as a file; what another tab wrote is there when this one is looked at again."""
    b.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
    click(b, "#chats li:has([aria-current]) .tools button:nth-child(2)")
    path, end = os.path.join(folder, "Read-this.json"), time.time() + 10 * SLOW
    while not os.path.exists(path) and time.time() < end:
        time.sleep(0.05)
    with open(path, encoding="utf-8") as f:
        saved = json.load(f)["messages"]
    C.ok([m["role"] for m in saved] == ["user", "assistant"] and saved[0]["content"].startswith("File notes.txt:"), f"saved: {saved}")
    b.js("""(async () => { const id = location.hash.slice(1), open = indexedDB.open('kvant'); await new Promise(r => { open.onsuccess = r; });
        const t = open.result.transaction(['heads', 'chats'], 'readwrite'), get = t.objectStore('chats').get(id);
        get.onsuccess = () => { const c = get.result; c.title = 'From elsewhere'; c.updated += 1e6; c.messages.push({role: 'user', content: 'from another tab'});
          t.objectStore('chats').put(c); t.objectStore('heads').put({id, title: c.title, updated: c.updated}); };
        await new Promise(r => { t.oncomplete = r; }); document.dispatchEvent(new Event('visibilitychange')); })(); true""")
    C.ok(b.wait("document.querySelectorAll('.message').length === 3 && document.querySelector('#chats [aria-current]').innerText === 'From elsewhere'", 10), "another tab's message")


def check_settings(b):
    """The dialog, by keyboard: what is typed is sent, and is there after a reload; the server's own values stand in grey."""
    settings(b, max_tokens="8")
    click(b, "#clear")
    click(b, "#settingsbutton")
    C.ok(b.wait("document.getElementById('top_k').placeholder === '40' && document.getElementById('min_p').placeholder === '0.05'", 10), "the server's values")
    b.screenshot("settings")
    b.js("document.getElementById('system').focus()")
    b.type("Speak like a sailor.")
    b.js("document.getElementById('top_k').focus()")
    b.type("20")
    b.press("Escape")
    C.ok(b.wait("!document.getElementById('settings').open", 5), "Escape closes it")
    n = len(sent(b, 0))
    b.js(SAY.format("'Ahoy'"))
    C.ok(b.wait(answered(1), 30), "answered")
    body = sent(b, n)[0]
    C.ok(body["messages"][0] == {"role": "system", "content": "Speak like a sailor."} and body["top_k"] == 20 and body["max_tokens"] == 8, f"sent: {body}")
    settings(b, max_tokens="8")


def check_models(b):
    """More than one model (a router's list): a choice, which is sent and kept; then one again."""
    b.js(FAKE)
    b.js("""window.script = []; window.fakeFetch = window.fetch; window.fetch = (url, o) => String(url).endsWith('/v1/models') ?
        Promise.resolve(new Response(JSON.stringify({data: [{id: 'small'}, {id: 'large'}]}))) : fakeFetch(url, o);
        sessionStorage.setItem('kvant-key', ''); true""")
    b.js("document.getElementById('models').dispatchEvent(new Event('change')); true")
    C.ok(b.wait("!document.getElementById('models').hidden && document.getElementById('models').options.length === 2", 10), "two models")
    b.js("(e => { e.value = 'large'; e.dispatchEvent(new Event('change')); })(document.getElementById('models')); true")
    C.ok(b.wait("document.getElementById('model').innerText === 'large'", 5), "the other one")
    b.js(f"window.script = [{json.dumps(content('Large.'))}]; true")
    click(b, "#clear")
    b.js(SAY.format("'Which?'"))
    C.ok(b.wait(answered(1), 10) and b.js("asked[asked.length - 1].model") == "large", "is asked")
    C.ok(b.js("document.querySelector('.message.assistant .who').innerText") == "large", "and named")
    b.js("localStorage.removeItem('kvant-model')")


def check_looks(b):
    """Dark by the system and by the switch; a phone of 360 points."""
    paper = "getComputedStyle(document.body).backgroundColor"
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    light = b.js(paper)
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = b.js(paper)
    C.ok(light != dark and b.js("document.documentElement.dataset.theme") == "auto", f"the system's colours: {light} {dark}")
    b.screenshot("dark")
    click(b, "#theme")
    C.ok(b.js(paper) == light, "light by the switch")
    click(b, "#theme")
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    C.ok(b.js(paper) == dark, "dark by the switch")
    b.call("Page.reload")
    C.ok(b.wait("document.querySelectorAll('.message').length && document.getElementById('status').innerText === 'connected'", 20) and b.js(paper) == dark, "over a reload")
    click(b, "#theme")
    b.call("Emulation.setDeviceMetricsOverride", width=1280, height=260, deviceScaleFactor=1, mobile=False)
    b.js("(m => { m.scrollTop = m.scrollHeight; })(document.getElementById('messages'))")
    before = b.wait("(m => m.scrollTop > 20 && m.clientWidth)(document.getElementById('messages'))")
    click(b, "#livebutton")
    C.ok(before and b.wait(f"(m => m.clientWidth < {before} && m.scrollHeight - m.scrollTop - m.clientHeight < 2)(document.getElementById('messages'))", 5), "the end stays in view")
    click(b, "#livebutton")
    b.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    b.call("Page.reload")
    C.ok(b.wait("document.querySelectorAll('.message').length && document.getElementById('status').innerText === 'connected'", 20), "on a phone")
    C.ok(b.js("document.documentElement.scrollWidth") == 360 and not b.js("document.body.matches('.side, .live')"), "nothing is wider, the panels are closed")
    inside = "(e => { const r = e.getBoundingClientRect(); return r.width > 20 && r.left >= 0 && r.right <= 360 && r.top >= 0 && r.bottom <= 740; })(document.querySelector('WHAT'))"
    C.ok(all(b.js(inside.replace('WHAT', x)) for x in ("#input", "#send", "#attach", "#model", "#sidebutton", "#settingsbutton", "#livebutton", "#theme")), "everything can be reached")
    b.screenshot("phone")
    for panel in ("side", "live"):
        click(b, f"#{panel}button")
        C.ok(b.js(inside.replace('WHAT', '#' + panel)), f"{panel} opens")
        b.screenshot("phone-" + panel)
        b.press("Escape")
        C.ok(b.js(f"document.getElementById('{panel}').offsetWidth") == 0, f"{panel}: Escape closes it")
    b.call("Emulation.clearDeviceMetricsOverride")


def check_keyboard(b):
    """Tab reaches every button and shows where it is; a slash goes to the message."""
    b.js("document.activeElement.blur(); document.body.focus()")
    seen = set()
    for _ in range(40):
        b.press("Tab")
        seen.add(b.js("document.activeElement.id || document.activeElement.innerText"))
        if len(seen) < 3:
            C.ok(b.js("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen")
    C.ok({"sidebutton", "settingsbutton", "livebutton", "theme", "clear", "input", "attach", "send", "Copy", "Edit", "Again"} <= seen, f"Tab: {seen}")
    b.js("document.activeElement.blur()")
    b.call("Input.dispatchKeyEvent", type="keyDown", key="/", code="Slash", text="/", windowsVirtualKeyCode=191)
    C.ok(b.js("document.activeElement.id") == "input" and b.js("document.getElementById('input').value") == "", "/ goes to the message")


def check_cache_text(b, s):
    """B15: nothing runs, pages are kept: the text says both."""
    s.post("/v1/completions", {"prompt": "The captain of the old ship looked at the sea. " * 30, "max_tokens": 2})
    C.ok(s.idle(10) and s.stats()["pages"]["cached"] > 0, "B15 pages are kept")
    C.ok(b.wait("/: 0 KiB used \\+ ([1-9]\\d* KiB|[\\d.]*[1-9][\\d.]* MiB) kept prefixes, of [1-9][\\d.]* MiB/.test(document.getElementById('bytes').innerText)", 10),
         f"B15 {b.js('document.getElementById(`bytes`).innerText')}")


def check_page(b, s):
    url = f"http://127.0.0.1:{s.port}/"
    b.call("Page.navigate", url=url)
    C.ok(b.wait("document.getElementById('status') && document.getElementById('status').innerText === 'connected'", 30), "connected")
    C.ok(b.wait("document.getElementById('model').innerText.includes('novella-hybrid-q8_0')"), "model name")
    C.ok(b.wait("document.getElementById('pagetext').innerText.includes('pages of 64')"), "budget")
    check_chat(b)
    check_live_and_stop(b, s)
    check_two_chats(b, s)
    check_after_error(b)
    check_edit(b)
    check_cache_text(b, s)
    check_history(b, url)
    check_settings(b)
    check_looks(b)
    check_keyboard(b)
    check_markdown(b)
    check_hostile_markdown(b)
    check_thoughts_and_calls(b)
    check_files(b)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        check_tabs(b, folder)
    check_models(b)
    check_list(b)
    check_import(b)
    check_windows(b, url)
    check_formulas(b)
    check_versions(b)
    asked = [e["params"]["request"]["url"] for e in b.events if e["method"] == "Network.requestWillBeSent"]
    C.ok(len(asked) > 20 and all(u.startswith((url, "data:")) for u in asked), f"only its own host: {asked}")
    bad = [e for e in b.events if e["method"] == "Runtime.exceptionThrown" or
           (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and "400" not in e["params"]["entry"]["text"] and       # B3's
            "/v1/stream" not in e["params"]["entry"].get("url", ""))]     # a stream of no server, which is looked for
    C.ok(not bad, f"console: {bad[:2]}")
    status, head, _ = s.request("GET", "/")
    policy = head.get("content-security-policy", "")
    C.ok(status == 200 and "script-src 'self';" in policy and "default-src 'none'" in policy and "unsafe" not in policy, f"policy: {policy}")
    b.js("(e => { e.textContent = 'window.broken = 2'; document.body.append(e); })(document.createElement('script')); true")
    C.ok(b.js("typeof window.broken") == "undefined", "a script in the page does not run")


def check_key(b):
    status = "document.getElementById('status') && document.getElementById('status').innerText"
    with Server(BUILD, "-c", "512", "-np", "1", env={"KVANT_ARG_API_KEY": "plain", "KVANT_ARG_ADMIN_KEY": "right"}) as s:
        b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
        C.ok(b.wait("document.getElementById('keybutton') && !document.getElementById('keybutton').hidden", 20), "asks for the key")
        b.js("sessionStorage.setItem('kvant-key', 'plain'); location.reload(); true")
        C.ok(b.wait(f"{status}.includes('wants the admin key')", 20), "A11 with a key: no live view")
        C.ok(b.wait("document.getElementById('model').innerText.includes('novella-hybrid-q8_0')"), "A11 with a key: the model")
        b.js("sessionStorage.setItem('kvant-key', 'right'); location.reload(); true")
        C.ok(b.wait(f"{status} === 'connected'", 20), "with the admin key")


def check_router(b):
    """A real router: what is not loaded is said, the first message loads it, another choice another model."""
    names = ("phi3", "qwen2")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            shutil.copy(os.path.join(ROOT, "tests", "archs", name + ".gguf"), folder)
        with Server(BUILD, "--models-dir", folder, "--models-max", "1", "-np", "1", model=None) as s:
            b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
            option = "(document.querySelector('#models option:checked') || {innerText: ''}).innerText"
            C.ok(b.wait(option + " === 'phi3 · not loaded'", 20), f"not loaded: {b.js(option)}")
            settings(b, max_tokens="4")
            for name in names:
                b.js(f"(e => {{ e.value = '{name}'; e.dispatchEvent(new Event('change')); }})(document.getElementById('models')); true")
                b.wait(f"document.getElementById('model').innerText.startsWith('{name}')", 5)
                b.js(SAY.format("'Hi'"))
                C.ok(b.wait(f"{IDLE} && {option} === '{name}' && document.getElementById('model').innerText.includes('context')", 20), f"{name}: {b.js(option)}")
            C.ok(b.js("[...document.querySelectorAll('.message.assistant .who')].map(e => e.innerText).join()") == "phi3,qwen2", "each answer has its model")
            b.screenshot("router")
            b.js("localStorage.removeItem('kvant-model')")


# Connections of answers that break after so many bytes each, as window.cuts says; window.seen: what was asked for.
CUTS = r"""window.realFetch = window.realFetch || window.fetch; window.seen = [];
window.fetch = async (url, o) => {
  const r = await realFetch(url, o), answer = String(url).endsWith("/v1/chat/completions") || String(url).includes("/v1/stream");
  if (answer) seen.push(((o && o.method) || "GET") + " " + new URL(url, location).search);
  if (!answer || !r.ok || !r.body || !window.cuts.length) return r;
  let left = window.cuts.shift();
  const from = r.body.getReader();
  return new Response(new ReadableStream({ async pull(c) {
    const { value, done } = await from.read();
    if (done) { c.close(); return; }
    c.enqueue(value.slice(0, left));
    left -= value.length;
    if (left <= 0) { await from.cancel(); c.error(new TypeError("network error")); } } }));
}; true"""


def check_broken(b):
    """A connection that breaks twice, within events: the answer is the one that it would have been.  Stop, and leaving, stop the server too."""
    with Server(BUILD, "-c", "8192", "-np", "2", "--ignore-eos") as s:
        b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
        C.ok(b.wait("document.getElementById('status') && document.getElementById('status').innerText === 'connected'", 30), "connected")
        settings(b, max_tokens="300", temperature="0", system="")
        want = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me of the sea"}], "max_tokens": 300, "temperature": 0})[1]
        b.js("window.cuts = [3001, 2003]; true")
        b.js(CUTS)
        click(b, "#clear")
        b.js(SAY.format("'Tell me of the sea'"))
        C.ok(b.wait(answered(1), 30), "answered although the connection broke")
        C.ok(b.js(LAST).split() == want["choices"][0]["message"]["content"].split(), f"all of it: {b.js(LAST)} {want}")
        froms = [int(x.split("from=")[1]) for x in b.js("seen") if x.startswith("GET")]
        C.ok(froms == [3001, 5004] and not b.js("document.getElementById('trouble').innerText"), f"{b.js('seen')}")
        settings(b, max_tokens="6000", temperature="0")
        for end in ("document.getElementById('stop').click(); true", "location.reload(); true"):
            b.js(SAY.format("'Go on'"))
            tries = 0
            while s.metric("num_requests_running") == 0 and (tries := tries + 1) < 200:
                time.sleep(0.05)
            C.ok(tries < 200, "an answer runs")
            b.js(end)
            C.ok(s.idle(20), f"{end}: nothing runs on")
        b.js("localStorage.removeItem('kvant-settings')")


class Blank(http.server.BaseHTTPRequestHandler):
    """A page of another origin, with nothing on it."""

    def do_GET(self):       # pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>elsewhere</title>")

    def log_message(self, *unused):     # pylint: disable=arguments-differ
        pass


CALL = """fetch('http://127.0.0.1:{}/v1/completions', {{method: 'POST', body: JSON.stringify({{prompt: 'a', max_tokens: 2, zebra: 1}}),
 headers: {{'Content-Type': 'application/json', 'X-Stainless-Lang': 'js', 'X-Stainless-Retry-Count': '0', 'Authorization': 'Bearer x'}}}})
 .then(r => r.json().then(x => window.out = r.headers.get('X-Kvant-Ignored-Fields') + ' ' + x.usage.completion_tokens)).catch(e => window.out = 'blocked')"""


def check_other_origin(b):
    """B4: a library's own headers (X-Stainless-*) pass the browser's preflight from an allowed origin, and from no other."""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{web.server_address[1]}"
    for allowed, want in ((here, "zebra 2"), ("http://other.example", "blocked")):
        with Server(BUILD, "-c", "512", "-np", "1", "--cors-origins", allowed) as s:
            b.call("Page.navigate", url=here)
            C.ok(b.wait("document.title === 'elsewhere' && document.readyState === 'complete'", 20), "B4 the other page")
            b.js(CALL.format(s.port) + "; true")
            got = b.wait("window.out", 20)
            C.ok(got == want, f"B4 allowed {allowed}: {got}, want {want}")
    web.shutdown()


def main():
    program = find_browser()
    if not program or not built(BUILD):
        print("SKIP check_serve_page: no chromium found" if not program else "SKIP check_serve_page: this build has no server")
        return C.end()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Server(BUILD, "-c", "16384", "-np", "4") as s:
        b = Browser(program, folder)
        try:
            check_page(b, s)
            check_key(b)
            check_router(b)
            check_broken(b)
            check_other_origin(b)
        finally:
            b.close()
    return C.end()


if __name__ == "__main__":
    sys.exit(main())
