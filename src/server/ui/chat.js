// chat.js: a chat and its requests.  A chat is {id, title, updated, system, messages}; a message is {role, content} and, of a
// user, files [{name, text}]; of a model, thought, calls, state (running, stopped, length, whole), note; of a tool, tool_call_id, name.
// Answers go on while another chat is shown.  Nothing here touches the page.
import { save, setting } from "./store.js";

const SAVE_MS = 1000;
export const base = location.pathname.replace(/\/(index\.html)?$/, "");
export const running = new Map();       // chat id: AbortController

export function key() { return sessionStorage.getItem("kvant-key") || ""; }

export function headers() {
  const h = { "Content-Type": "application/json" };
  if (key()) h.Authorization = "Bearer " + key();
  return h;
}

export function newChat(system) {
  return { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "New chat", updated: Date.now(), system, messages: [] };
}

// ---- errors in words, with what to do ----

const ADVICE = {
  exceed_context_size_error: "Make the message shorter, or begin a new chat. A larger context: kvant serve -c.",
  authentication_error: "This server wants a key: the button “API key” at the top takes it.",
  permission_error: "The key does not allow this: ask whoever runs the server.",
  not_found_error: "Choose another model, or reload the page.",
  rate_limit_error: "The server is busy with others: wait a moment and send it again.",
  unavailable_error: "The server loads its model, or is about to end: send it again when the line at the top says “connected”.",
  server_error: "The messages of the server say more.",
  invalid_request_error: "If the message names a setting, change it under “Settings” and send it again."
};

export class Trouble extends Error {
  constructor(text, advice) { super(text); this.advice = advice; }
}

function troubleOf(error, status) {
  return new Trouble(error.message || "The server said: status " + status, ADVICE[error.type] || (status >= 500 ? ADVICE.server_error : ADVICE.invalid_request_error));
}

export async function troubleFrom(response) {
  let error = {};
  try { error = (await response.json()).error || {}; } catch { /* a proxy's page: the status says it */ }
  return troubleOf(error, response.status);
}

function inWords(e) {
  if (e instanceof Trouble) return e;
  if (e instanceof TypeError) return new Trouble("The server does not answer.", "See whether kvant serve still runs, and send it again when the line at the top says “connected”.");
  return new Trouble(e.message, "If it happens again, reload the page: the chats are kept.");
}

// A reader's place in a stream: bytes that came, and the line that is not whole yet.
function place() { return { bytes: 0, rest: "", decoder: new TextDecoder() }; }

// Reads an event stream of a fetch response, from this place on; calls back with the text of each data line.
export async function readEvents(response, onData, at = place()) {
  const reader = response.body.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    at.bytes += value.length;
    at.rest += at.decoder.decode(value, { stream: true });
    const lines = at.rest.split("\n");
    at.rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) onData(line.slice(6));
  }
}

// ---- streams that go on where a connection broke ----

const WAIT_MS = [200, 1000, 3000, 6000];
const streams = new Map();              // chat id: name of the running stream

// A name that nobody else guesses: it is all that reading and stopping the stream takes.
function nameStream(id) {
  const name = [...crypto.getRandomValues(new Uint8Array(16))].map(x => x.toString(16).padStart(2, "0")).join("");
  streams.set(id, name);
  return name;
}

function streamUrl(name) { return base + "/v1/stream?conv_id=" + name; }

// The rest of a stream, or null: the server does not answer, or has nothing of it any more.
async function comeBack(name, from, signal) {
  for (const ms of WAIT_MS) {
    await new Promise(r => setTimeout(r, ms));
    const response = await fetch(streamUrl(name) + "&from=" + from, { headers: headers(), signal }).catch(e => { if (e.name === "AbortError") throw e; });
    if (response && response.ok) return response;
    if (response && ![502, 503, 504].includes(response.status)) return null;
  }
  return null;
}

// A stream goes on without its reader, so that who wants no more of it has to say so; also when the page is left.
export function dropStream(id) {
  const name = streams.get(id);
  streams.delete(id);
  if (name) fetch(streamUrl(name), { method: "DELETE", headers: headers(), keepalive: true }).catch(() => { /* it ends by itself after a while */ });
}

// ---- the request ----

function textOf(m) {
  return (m.files || []).map(f => `File ${f.name}:\n\`\`\`\n${f.text}\n\`\`\`\n\n`).join("") + m.content;
}

export function apiMessage(m) {
  if (m.role === "tool") return { role: "tool", tool_call_id: m.tool_call_id, content: m.content };
  const out = { role: m.role, content: textOf(m) };
  if (m.thought) out.reasoning_content = m.thought;
  if (m.calls && m.calls.length)
    out.tool_calls = m.calls.map(c => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  return out;
}

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

function toolsOf(text) {
  try {
    const tools = JSON.parse(text);
    if (Array.isArray(tools)) return tools;
  } catch { /* said below */ }
  throw new Trouble("Tools: found no JSON array.", "Mend or empty the field “Tools” under “Settings”.");
}

function body(chat, answer) {
  const s = setting("settings") || {}, goesOn = answer.content !== "";
  const history = chat.messages.slice(0, chat.messages.indexOf(answer) + (goesOn ? 1 : 0));
  const out = { messages: history.map(apiMessage), stream: true, stream_options: { include_usage: true } };
  if (chat.system) out.messages.unshift({ role: "system", content: chat.system });
  if (goesOn) Object.assign(out, { continue_final_message: true, add_generation_prompt: false });
  for (const name of NUMBERS) if (s[name] !== undefined && s[name] !== "") out[name] = Number(s[name]);
  if (s.thinking) out.enable_thinking = s.thinking === "on";
  if ((s.tools || "").trim()) out.tools = toolsOf(s.tools);
  if (setting("model")) out.model = setting("model");
  return out;
}

function takeCalls(answer, deltas) {
  for (const d of deltas || []) {
    const call = answer.calls[d.index] = answer.calls[d.index] || { id: "", name: "", arguments: "" };
    if (d.id) call.id = d.id;
    if (d.function && d.function.name) call.name = d.function.name;
    if (d.function && d.function.arguments) call.arguments += d.function.arguments;
  }
}

function noteOf(usage, t0, first) {
  const now = performance.now(), n = usage.completion_tokens, cached = usage.prompt_tokens_details ? usage.prompt_tokens_details.cached_tokens : 0;
  const rate = first && n > 1 ? (n - 1) * 1000 / (now - first) : 0;
  return `${n} tokens in ${((now - t0) / 1000).toFixed(2)} s` + (first ? `, first after ${Math.round(first - t0)} ms, ${rate.toFixed(1)} t/s` : "") +
    `, ${cached} of ${usage.prompt_tokens} prompt tokens cached`;
}

// Follows the stream of one answer into the message; again(bytes): the rest of it, or null.
async function follow(response, answer, changed, again) {
  const t0 = performance.now();
  const at = place();
  let first = 0, thinkingSince = 0, whole = false, usage = null, reason = "stop";
  const take = data => {
    if (data === "[DONE]") { whole = true; return; }
    const chunk = JSON.parse(data);
    if (chunk.error) throw troubleOf(chunk.error, chunk.error.code);
    if (chunk.usage) usage = chunk.usage;
    const choice = chunk.choices && chunk.choices[0];
    if (!choice) return;
    if (choice.finish_reason) reason = choice.finish_reason;
    const d = choice.delta || {};
    if (!first && (d.content || d.reasoning_content || d.tool_calls)) first = performance.now();
    if (d.reasoning_content) { thinkingSince = thinkingSince || performance.now(); answer.thought += d.reasoning_content; }
    if (d.content || d.tool_calls)
      if (thinkingSince && !answer.thoughtSeconds) answer.thoughtSeconds = (performance.now() - thinkingSince) / 1000;
    if (d.content) answer.content += d.content;
    takeCalls(answer, d.tool_calls);
    changed(false);
  };
  while (response && !whole) {
    await readEvents(response, take, at).catch(e => { if (!(e instanceof TypeError)) throw e; });     // the network's
    response = whole ? null : await again(at.bytes);
  }
  if (usage) answer.note = noteOf(usage, t0, first);
  if (!whole) throw Object.assign(new Trouble("The connection ended in the middle of the answer.", "“Continue” goes on where it ended, “Again” begins anew."), { cut: true });
  answer.state = reason === "length" ? "length" : "whole";
}

// Fills `answer`, which is in the chat and empty (or holds the text that is to go on).  changed(structure): draw again.  Gives
// null, or a Trouble; an answer of which nothing came is then out of the chat again.
export async function run(chat, answer, changed) {
  const control = new AbortController(), before = answer.content;
  let trouble = null, saved = 0;
  const keep = () => save(chat).catch(e => { trouble = trouble || new Trouble("The browser did not keep the chat: " + e.message, "Delete chats that are no longer wanted."); });
  running.set(chat.id, control);
  answer.state = "running";
  chat.updated = Date.now();
  keep();
  changed(true);
  try {
    const name = nameStream(chat.id), signal = control.signal;
    const response = await fetch(base + "/v1/chat/completions", { method: "POST", headers: { ...headers(), "X-Conversation-Id": name }, signal, body: JSON.stringify(body(chat, answer)) });
    if (!response.ok) throw await troubleFrom(response);
    await follow(response, answer, structure => {
      if (Date.now() - saved > SAVE_MS) { saved = Date.now(); keep(); }
      changed(structure);
    }, from => comeBack(name, from, signal));
    streams.delete(chat.id);
  } catch (e) {
    answer.state = before === answer.content && before ? "length" : "stopped";
    if (e.name !== "AbortError") trouble = inWords(e);
    if (e.cut) answer.state = "cut";
  }
  chat.updated = Date.now();
  control.abort();      // an error inside the stream leaves it open
  dropStream(chat.id);
  running.delete(chat.id);
  if (trouble && !answer.content && !answer.thought && !answer.calls.length) chat.messages.splice(chat.messages.indexOf(answer), 1);
  await keep();
  changed(true);
  return trouble;
}

// ---- a conversation of a file, in OpenAI's words ----

function refuse(name, value, wanted) {
  const found = value === null || value === undefined ? "nothing" : Array.isArray(value) ? "an array" : typeof value === "object" ? "an object" : typeof value === "string" ? value.slice(0, 40) : "a " + typeof value;
  throw new Trouble(`${name}: found ${found}, wanted ${wanted}.`, "Mend the file and import it again; nothing of it was kept.");
}

// None is ""; parts of text are put together.
function textField(value, name) {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  const parts = Array.isArray(value) && value.every(p => p && p.type === "text" && typeof p.text === "string");
  return parts ? value.map(p => p.text).join("") : refuse(name, value, "text");
}

function callField(t, name) {
  if (!t || typeof t.function !== "object" || !t.function) refuse(name + ".function", t && t.function, "an object");
  const { name: called, arguments: given } = t.function;
  if (typeof called !== "string") refuse(name + ".function.name", called, "text");
  return { id: textField(t.id, name + ".id"), name: called,
    arguments: given && typeof given === "object" ? JSON.stringify(given) : textField(given, name + ".function.arguments") };
}

// Messages of a file as {system, messages} of a chat; throws a Trouble that names the field that does not fit.
export function fromFile(list, model) {
  const system = [], messages = [];
  list.forEach((m, i) => {
    const at = `messages[${i}]`;
    if (!m || !["system", "user", "assistant", "tool"].includes(m.role)) refuse(at + ".role", m && m.role, "system, user, assistant or tool");
    const content = textField(m.content, at + ".content"), calls = m.tool_calls ?? [];
    if (!Array.isArray(calls)) refuse(at + ".tool_calls", calls, "an array");
    if (m.role === "system") system.push(content);
    if (m.role === "user") messages.push({ role: "user", content, files: [] });
    if (m.role === "tool")
      messages.push({ role: "tool", tool_call_id: textField(m.tool_call_id, at + ".tool_call_id"), name: textField(m.name, at + ".name") || "tool", content });
    if (m.role === "assistant")
      messages.push({ ...emptyAnswer(model), content, thought: textField(m.reasoning_content, at + ".reasoning_content"), state: "whole",
        calls: calls.map((t, k) => callField(t, `${at}.tool_calls[${k}]`)) });
  });
  return { system: system.join("\n"), messages };
}

export function emptyAnswer(model) { return { role: "assistant", model, content: "", thought: "", calls: [], state: "running" }; }
