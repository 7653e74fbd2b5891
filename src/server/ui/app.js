"use strict";
// app.js: the page of kvant serve: a chat over /v1/chat/completions and a live view over /debug/events.  Talks to its own
// server only; text is always set as text, never as HTML.

const $ = id => document.getElementById(id);
const base = location.pathname.replace(/\/(index\.html)?$/, "");
let chat = { messages: [] }, running = null, modelName = "", points = [], last = null;

function key() { return sessionStorage.getItem("kvant-key") || ""; }

function headers() {
  const h = { "Content-Type": "application/json" };
  if (key()) h.Authorization = "Bearer " + key();
  return h;
}

function askKey() {
  const k = prompt("API key of this server");
  if (k !== null) { sessionStorage.setItem("kvant-key", k.trim()); start(); }
}

// Reads an event stream of a fetch response; calls back with the text of each data line.
async function readEvents(response, onData) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) onData(line.slice(6));
  }
}

async function errorText(response) {
  try { return (await response.json()).error.message; } catch { return "status " + response.status; }
}

// ---- chat ----

function show(role, text) {
  const box = document.createElement("div"), who = document.createElement("span"), body = document.createElement("span");
  box.className = "message " + role;
  who.className = "who";
  who.textContent = role === "user" ? "you" : role === "error" ? "error" : modelName;
  body.textContent = text;
  box.append(who, body);
  $("messages").append(box);
  $("messages").scrollTop = $("messages").scrollHeight;
  return body;
}

function busy(on) {
  $("send").disabled = on;
  $("stop").disabled = !on;
}

// The question goes back to where it was written: it is no part of the chat, so the next one does not fail for it.
function giveBack(question, asked, box) {
  box.remove();
  asked.parentNode.classList.add("failed");
  asked.parentNode.firstChild.textContent = "you, not answered";
  if (!$("input").value) $("input").value = question;
}

function showTiming(usage, t0, first) {
  const now = performance.now(), rate = first && usage.completion_tokens > 1 ? (usage.completion_tokens - 1) * 1000 / (now - first) : 0;
  $("timing").textContent = usage.completion_tokens + " tokens in " + ((now - t0) / 1000).toFixed(2) + " s, first after " +
    Math.round(first - t0) + " ms, " + rate.toFixed(1) + " t/s, " + usage.prompt_tokens_details.cached_tokens + " of " +
    usage.prompt_tokens + " prompt tokens cached";
}

// One turn of the chat `mine`.  Whatever comes after another chat began is dropped.
async function answer(mine, question, asked) {
  const body = show("assistant", ""), t0 = performance.now(), turn = { role: "user", content: question };
  let text = "", first = 0, usage = null, failed = "", whole = false;
  running = new AbortController();
  busy(true);
  try {
    const response = await fetch(base + "/v1/chat/completions", {
      method: "POST", headers: headers(), signal: running.signal,
      body: JSON.stringify({ messages: [...mine.messages, turn], stream: true, stream_options: { include_usage: true },
                             temperature: Number($("temperature").value), max_tokens: Number($("max_tokens").value) })
    });
    if (!response.ok) throw new Error(await errorText(response));
    await readEvents(response, data => {
      if (mine !== chat) return;
      if (data === "[DONE]") { whole = true; return; }
      const chunk = JSON.parse(data);
      if (chunk.error) { failed = chunk.error.message; return; }
      if (chunk.usage) usage = chunk.usage;
      const delta = chunk.choices[0] && chunk.choices[0].delta;
      if (!delta || !delta.content) return;
      if (!first) first = performance.now();
      text += delta.content;
      body.textContent = text;
      $("messages").scrollTop = $("messages").scrollHeight;
    });
  } catch (e) {
    if (e.name !== "AbortError") failed = e.message;
  }
  if (mine !== chat) return;
  running = null;
  busy(false);
  if (text || whole) mine.messages.push(turn, { role: "assistant", content: text });
  else giveBack(question, asked, body.parentNode);
  if (failed) show("error", failed);
  if (usage) showTiming(usage, t0, first);
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  const text = $("input").value.trim();
  if (!text || running) return;
  $("input").value = "";
  answer(chat, text, show("user", text));
});
$("input").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); $("form").requestSubmit(); }
});
$("stop").addEventListener("click", () => running && running.abort());
$("clear").addEventListener("click", () => {
  if (running) running.abort();
  running = null;
  chat = { messages: [] };
  busy(false);
  $("messages").replaceChildren();
  $("timing").textContent = "";
});
$("keybutton").addEventListener("click", askKey);

// ---- live view ----

function size(bytes) { return bytes >= 1048576 ? (bytes / 1048576).toFixed(1) + " MiB" : Math.round(bytes / 1024) + " KiB"; }

function drawRate() {
  const c = $("rate"), g = c.getContext("2d"), w = c.width, h = c.height;
  const most = Math.max(1, ...points.map(p => Math.max(p.gen, p.prompt))) * 1.1;
  g.clearRect(0, 0, w, h);
  g.fillStyle = "#5d6673";
  g.font = "11px sans-serif";
  g.fillText(Math.round(most) + " t/s", 4, 12);
  for (const [name, color] of [["prompt", "#c2691c"], ["gen", "#1a6fb5"]]) {
    g.strokeStyle = color;
    g.lineWidth = 2;
    g.beginPath();
    points.forEach((p, i) => {
      const x = w - (points.length - 1 - i) * (w / 120), y = h - 2 - p[name] / most * (h - 18);
      i ? g.lineTo(x, y) : g.moveTo(x, y);
    });
    g.stroke();
  }
}

function showSlots(slots) {
  const rows = slots.filter(s => s.state !== "free").map(s => {
    const tr = document.createElement("tr");
    const cells = [s.id, s.state, s.n_prompt_tokens, s.n_cached, s.n_decoded, s.pages, s.tokens_per_second ? s.tokens_per_second.toFixed(1) : ""];
    for (const v of cells) { const td = document.createElement("td"); td.textContent = v; tr.append(td); }
    return tr;
  });
  $("slots").tBodies[0].replaceChildren(...rows);
}

function showLive(s) {
  if (last && s.time > last.time) {
    const dt = s.time - last.time;
    points.push({ gen: (s.generated_tokens - last.generated_tokens) / dt, prompt: (s.computed_tokens - last.computed_tokens) / dt });
    points = points.slice(-120);
    $("tps").textContent = points[points.length - 1].gen.toFixed(1);
    $("pps").textContent = points[points.length - 1].prompt.toFixed(1);
  }
  last = s;
  drawRate();
  const p = s.pages;
  $("pages").children[0].style.width = 100 * p.used / p.total + "%";
  $("pages").children[1].style.width = 100 * p.cached / p.total + "%";
  $("pagetext").textContent = "· " + p.used + " + " + p.cached + " of " + p.total + " pages of 64 tokens";
  $("bytes").textContent = "cache: " + size(s.bytes.used) + " used + " + size(s.bytes.cached) + " kept prefixes, of " + size(s.bytes.total) +
    (s.states.total ? ", snapshots: " + (s.states.total - s.states.free) + " of " + s.states.total : "");
  $("counts").textContent = s.running + " running (" + s.prefilling + " in their prompt), " + s.queued + " waiting, " +
    s.connections + " connections, " + s.preemptions + " preemptions, prefix hits " +
    (s.prefix_queries ? Math.round(100 * s.prefix_hits / s.prefix_queries) : 0) + " %";
  showSlots(s.slots);
}

function status(text, on) {
  $("status").textContent = text;
  $("status").className = on ? "on" : "off";
}

async function follow() {
  for (;;) {
    try {
      const response = await fetch(base + "/debug/events", { headers: headers() });
      if (response.status === 403) { status("connected; the live view wants the admin key", true); $("keybutton").hidden = false; return; }
      if (response.status === 401) { status("API key wanted", false); $("keybutton").hidden = false; return; }
      if (!response.ok) throw new Error(await errorText(response));
      status("connected", true);
      await readEvents(response, data => showLive(JSON.parse(data)));
      status("disconnected", false);
    } catch (e) { status(e.message, false); }
    await new Promise(done => setTimeout(done, 2000));
  }
}

async function start() {
  follow();
  try {
    const response = await fetch(base + "/v1/models", { headers: headers() });
    if (response.ok) {
      const m = (await response.json()).data[0];
      modelName = m.id;
      $("model").textContent = m.id + " · " + m.meta.desc + " · context " + m.meta.n_ctx;
    }
  } catch { /* the status line says it */ }
}

start();
