// app.js: the page of kvant serve: the list of chats, the composer, settings, keys.  chat.js speaks to the server, view.js
// draws messages, live.js the live view, store.js keeps things in the browser.  Talks to its own server only.
import * as store from "./store.js";
import { Trouble, apiMessage, base, dropStream, emptyAnswer, fromFile, headers, newChat, run, running } from "./chat.js";
import { followLive } from "./live.js";
import { button, drawChat, drawGrowing, editMessage, keepEnd, make, showTrouble } from "./view.js";

const $ = id => document.getElementById(id);
const MOST_FILE = 1 << 20, PHONE = matchMedia("(max-width: 760px)"), NARROW = matchMedia("(max-width: 1100px)");
const FIELDS = ["system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "thinking", "tools"];
let chat = null, files = [], modelName = "";

// ---- dialogs ----

// Asks for a text, or with value null for yes or no; the text or true; null when it is left.
function ask(title, text, value, yes) {
  const d = $("ask"), field = $("askvalue");
  $("asktitle").textContent = title;
  $("asktext").textContent = text;
  $("askyes").textContent = yes;
  field.hidden = value === null;
  field.value = value || "";
  d.returnValue = "";
  d.showModal();
  if (value !== null) field.select();
  return new Promise(done => d.addEventListener("close", () => done(d.returnValue !== "yes" ? null : value === null ? true : field.value.trim()), { once: true }));
}

async function askKey() {
  const k = await ask("API key", "The key of this server; it is kept until this tab is closed.", "", "Use it");
  if (k === null) return;
  sessionStorage.setItem("kvant-key", k);
  start();
}

// ---- the list of chats ----

function chatRow(head) {
  const li = make("li"), open = button(head.title, () => openChat(head.id)), tools = make("span", "tools");
  for (const [sign, act, what] of [["✎", renameChat, "Rename"], ["↓", saveFile, "Save as a file"], ["✕", deleteChat, "Delete"]]) {
    const b = tools.appendChild(button(sign, () => act(head), what));
    b.setAttribute("aria-label", what + ": " + head.title);
  }
  open.className = "title";
  if (head.id === chat.id) open.setAttribute("aria-current", "true");
  li.classList.toggle("running", running.has(head.id));
  li.append(open, tools);
  return li;
}

// Those whose title or text has what stands in the field of the search.
async function drawList() {
  const found = $("search").value.trim().toLowerCase(), asked = found && await store.withText(found);
  if (found !== $("search").value.trim().toLowerCase()) return;      // typed on meanwhile
  $("chats").replaceChildren(...store.list().filter(head => !found || asked.has(head.id)).map(chatRow));
}

// A file of "Save as a file", of kvant run's /save, or any {"messages": [...]} in OpenAI's words, as a chat.
async function importFile(file) {
  const bad = new Trouble(`${file.name}: no conversation: wanted a JSON object with messages of system, user and assistant.`, "“↓” at a chat, and /save of kvant run, write such files.");
  let messages = null;
  try { messages = JSON.parse(await file.text()).messages; } catch { /* said below */ }
  if (!Array.isArray(messages) || !messages.some(m => m && m.role === "user")) { showTrouble(bad); return; }
  const c = newChat("");
  try { Object.assign(c, fromFile(messages, modelName)); } catch (e) { showTrouble(new Trouble(file.name + ": " + e.message, e.advice)); return; }
  c.title = file.name.replace(/\.json$/, "").slice(0, 60);
  await kept(store.save(c));
  showChat(c);
}

// The conversation as a file that kvant run /load reads, too.
async function saveFile(head) {
  const c = await store.load(head.id), link = make("a");
  const messages = [...(c.system ? [{ role: "system", content: c.system }] : []), ...c.messages.map(apiMessage)];
  link.href = URL.createObjectURL(new Blob([JSON.stringify({ messages }, null, 1) + "\n"], { type: "application/json" }));
  link.download = (c.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "chat") + ".json";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function renameChat(head) {
  const title = await ask("Rename", "", head.title, "Rename");
  if (!title || taken(head)) return;
  const c = await store.load(head.id);
  c.title = title;
  await kept(store.save(c));
  drawAll();
}

async function deleteChat(head) {
  if (!await ask("Delete", `“${head.title}” is deleted from this browser for good.`, null, "Delete")) return;
  if (running.has(head.id)) running.get(head.id).abort();
  gone.add(head.id);
  await kept(store.remove(head.id));
  if (head.id === chat.id) showChat(newChat(systemText()));
  else drawList();
}

const gone = new Set();     // deleted: what their answers still bring is dropped

async function kept(promise) {
  try { await promise; } catch (e) { showTrouble(new Trouble("The browser did not keep the chat: " + e.message, "Delete chats that are no longer wanted.")); }
}

function systemText() { return (store.setting("settings") || {}).system || ""; }

function showChat(c) {
  chat = c;
  history.replaceState(null, "", c.messages.length ? "#" + c.id : location.pathname);
  $("messages").replaceChildren();
  showTrouble(null);
  drawAll();
  $("messages").scrollTop = $("messages").scrollHeight;
  if (PHONE.matches) toggle("side", false);
}

async function openChat(id) {
  try {
    const c = await store.load(id);
    if (!c) return;
    if (!running.has(id) && !elsewhere.has(id))
      for (const m of c.messages) if (m.state === "running") m.state = "stopped";     // the page was closed or loaded anew
    showChat(c);
  } catch (e) {         // what is stored is no chat, or cannot be read
    showChat(newChat(systemText()));
    showTrouble(new Trouble("This chat cannot be shown: " + e.message, "“✕” at its title deletes it; the others are not touched."));
  }
}

function drawAll() {
  const on = running.has(chat.id);
  drawList();
  drawChat(chat, actions);
  document.title = chat.messages.length ? chat.title + " · kvant" : "kvant";
  $("chat").classList.toggle("busy", on);
  $("send").disabled = on;
  $("stop").disabled = !on;
}

// ---- other windows ----

// A window tells each second which chats it answers (browsers let a hidden one tell it once a minute), and when it is closed.
const BEAT_MS = 1000, EXPIRY_MS = 65000;
const elsewhere = new Map();        // chat id: when another window last told that it answers it

// true: an answer of this chat grows here, or in another window, which would write over what comes here.
function busy(c) { return running.has(c.id) || taken(c); }

function taken(c) {
  if (!elsewhere.has(c.id)) return false;
  showTrouble(new Trouble("This chat is being answered in another window.", "Wait for the end of that answer, or begin a new chat."));
  return true;
}

// Shows at once what another window wrote, and where its answer begins and ends.
function fromElsewhere(news) {
  if (news.asks) { tellRunning(); return; }
  const turned = elsewhere.has(news.id) !== news.running;
  if (news.running) elsewhere.set(news.id, Date.now()); else elsewhere.delete(news.id);
  if (!turned && !news.wrote) return;
  if (!running.has(news.id)) store.forget(news.id);
  lookAgain(true, news.id === chat.id && (turned || !news.running));
}

function tellRunning() { for (const id of running.keys()) store.tell({ id, running: true }); }

// One that ended without a word (a crash) is given up.
function beat() {
  tellRunning();
  for (const [id, heard] of elsewhere) if (Date.now() - heard > EXPIRY_MS) fromElsewhere({ id, running: false });
}

// ---- asking and answering ----

// Appends an answer to c and fills it; undo() is called when nothing came of it.
async function answer(c, undo, message) {
  const m = message || emptyAnswer(modelName);
  if (!message) c.messages.push(m);
  showTrouble(null);
  const trouble = await run(c, m, structure => {
    if (gone.has(c.id)) return;
    if (c !== chat) { if (structure) drawList(); } else if (structure) drawAll(); else drawGrowing(m, () => c === chat);
  });
  store.tell({ id: c.id, running: false });
  if (gone.has(c.id)) { await kept(store.remove(c.id)); drawList(); return; }
  if (trouble && !c.messages.includes(m)) {
    undo();
    await kept(c.messages.length ? store.save(c) : store.remove(c.id));
  }
  if (c === chat) { drawAll(); if (trouble) showTrouble(trouble); }
  if (!$("models").hidden) about();     // it may have been loaded for this, and another one unloaded
}

// The question goes back to where it was written: it is no part of the chat, so the next one does not fail for it.
function giveBack(c, question) {
  c.messages.splice(c.messages.indexOf(question), 1);
  if (c !== chat || $("input").value) return;
  $("input").value = question.content;
  files = question.files || [];
  drawFiles();
  grow();
}

function send() {
  const text = $("input").value.trim(), c = chat;
  if ((!text && !files.length) || busy(c)) return;
  const question = { role: "user", content: text, files };
  if (!c.messages.length) c.title = (text || files[0].name).replace(/\s+/g, " ").slice(0, 60);
  c.messages.push(question);
  $("input").value = "";
  files = [];
  drawFiles();
  grow();
  history.replaceState(null, "", "#" + c.id);
  $("messages").scrollTop = $("messages").scrollHeight;
  answer(c, () => giveBack(c, question));
}

// ---- versions: what stood behind a place of the chat before it was answered anew ----

// The message in front of the place keeps them, else the chat itself: {list, shown}; the one that is shown is null there.
function versionsAt(c, at) {
  const of = at ? c.messages[at - 1] : c;
  return of.versions = of.versions || { list: [null], shown: 0 };
}

// Puts away what begins at the place; the function that is returned brings it back.
function putAway(c, at) {
  const old = c.messages.splice(at), v = versionsAt(c, at), shown = v.shown;
  if (!old.length) return () => {};
  v.list[shown] = old;
  v.shown = v.list.push(null) - 1;
  return () => {
    c.messages.push(...old);
    v.list.pop();
    v.list[shown] = null;
    v.shown = shown;
  };
}

function showVersion(m, step) {
  const c = chat, at = c.messages.indexOf(m), v = versionsAt(c, at);
  if (busy(c) || !v.list[v.shown + step]) return;
  v.list[v.shown] = c.messages.splice(at);
  v.shown += step;
  c.messages.push(...v.list[v.shown]);
  v.list[v.shown] = null;
  c.updated = Date.now();
  kept(store.save(c));
  drawAll();
}

// Answers message m anew (an answer: the one before it); what follows is put away.
function anew(m) {
  const c = chat;
  if (!busy(c)) answer(c, putAway(c, c.messages.indexOf(m) + (m.role === "assistant" ? 0 : 1)));
}

// A message that was written anew, in the place of m.
function edited(m, text) {
  const c = chat, at = c.messages.indexOf(m);
  if (busy(c)) return;
  const back = putAway(c, at);
  c.messages.push({ role: "user", content: text, files: m.files });
  answer(c, () => { c.messages.splice(at); back(); });
}

const actions = {
  again: anew,
  resend: anew,
  goOn: m => busy(chat) || answer(chat, () => {}, m),
  edit: m => editMessage(m, m.role === "user" ? "Send" : "Keep", text => {
    if (text === null || text.trim() === "") { drawAll(); return; }
    if (m.role === "user") { drawAll(); edited(m, text); return; }
    if (taken(chat)) { drawAll(); return; }
    m.content = text;
    kept(store.save(chat));
    drawAll();
  }),
  version: showVersion,
  results: (m, texts) => {
    const c = chat, results = m.calls.map((call, i) => ({ role: "tool", tool_call_id: call.id, name: call.name, content: texts[i] }));
    c.messages.push(...results);
    answer(c, () => c.messages.splice(c.messages.indexOf(results[0]), results.length));
  }
};

// ---- attachments ----

function drawFiles() {
  $("files").replaceChildren(...files.map(f => button(f.name + " ✕", () => { files = files.filter(x => x !== f); drawFiles(); }, "Leave it out")));
}

async function attach(list) {
  for (const file of list) {
    try {
      if (file.size > MOST_FILE) throw new Trouble(`${file.name}: ${(file.size / 1048576).toFixed(1)} MiB, at most 1 MiB.`, "Attach the part of it that matters.");
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError();
      files = [...files, { name: file.name, text }];
    } catch (e) {
      showTrouble(e instanceof Trouble ? e : new Trouble(`${file.name}: no text in UTF-8.`, "Text files can be attached: code, notes, tables, logs."));
    }
  }
  drawFiles();
}

// ---- settings, theme, panels ----

function fillSettings() {
  const s = store.setting("settings") || {};
  for (const name of FIELDS) $(name).value = name === "system" ? chat.system : s[name] || "";
}

// Every change counts at once; the system prompt is the shown chat's, and that of chats to come.
function readSettings() {
  const s = {};
  for (const name of FIELDS) s[name] = $(name).value.trim();
  store.setting("settings", s);
  if (chat.system === s.system) return;
  chat.system = s.system;
  if (chat.messages.length && !taken(chat)) kept(store.save(chat));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  store.setting("theme", theme);
  $("theme").setAttribute("aria-label", "Colours: " + theme);
  $("theme").title = "Colours: " + theme + " (click for the next)";
}

function toggle(panel, open) {
  document.body.classList.toggle(panel, open);
  $(panel + "button").setAttribute("aria-expanded", String(document.body.classList.contains(panel)));
  if (!NARROW.matches) store.setting(panel, document.body.classList.contains(panel));
}

// Beside the chat where there is room, as they were left (the live view is closed at first); over it, and closed at first,
// where there is none.
function openPanels() {
  toggle("side", !NARROW.matches && store.setting("side") !== false);
  toggle("live", !NARROW.matches && store.setting("live") === true);
}

function grow() {
  $("input").style.height = "auto";
  $("input").style.height = Math.min($("input").scrollHeight + 2, 240) + "px";
}

// ---- what the server says about itself ----

async function about() {
  try {
    const response = await fetch(base + "/v1/models", { headers: headers() });
    if (!response.ok) return;
    const models = (await response.json()).data, chosen = models.find(m => m.id === store.setting("model")) || models[0];
    showModels(models, chosen);
    if (chosen.status && chosen.status.value !== "loaded") return;
    const props = await fetch(base + "/props?model=" + encodeURIComponent(chosen.id), { headers: headers() });
    if (!props.ok) return;
    const p = await props.json(), d = p.default_generation_settings || {};
    const shown = v => v === undefined ? "" : String(Math.round(v * 1e4) / 1e4);
    for (const name of ["temperature", "top_p", "top_k", "min_p"]) $(name).placeholder = shown(d[name]);
    if (p.chat_template_problem) showTrouble(new Trouble("This model cannot chat: " + p.chat_template_problem, "Start the server with --chat-template, or with another model."));
  } catch { /* the status line says it */ }
}

// If there are several models, the first message loads its model.
function modelState(status) {
  if (!status || status.value === "loaded") return "";
  return " · " + (status.failed ? "failed" : status.value === "loading" ? "loading" : "not loaded");
}

function showModels(models, chosen) {
  modelName = chosen.id;
  $("model").textContent = chosen.id + (chosen.meta ? " · " + chosen.meta.desc + " · context " + chosen.meta.n_ctx : "");
  $("model").title = $("model").textContent;
  $("models").hidden = models.length < 2;
  $("models").replaceChildren(...models.map(m => new Option(m.id + modelState(m.status), m.id, false, m === chosen)));
  $("models").title = chosen.status && chosen.status.error || "";
  store.setting("model", chosen.id);
}

function start() {
  followLive(about);
  about();
}

// ---- keys and clicks ----

function onKey(e) {
  if (e.defaultPrevented || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (e.key === "Escape" && document.body.matches(".side, .live") && NARROW.matches) { toggle("side", false); toggle("live", false); }
  else if (e.key === "Escape" && running.has(chat.id)) running.get(chat.id).abort();
  else if (e.key === "/" && !typing) { e.preventDefault(); $("input").focus(); }
  else if (e.key === "ArrowUp" && document.activeElement === $("input") && !$("input").value && !running.has(chat.id)) {
    const mine = chat.messages.filter(m => m.role === "user").pop();
    if (mine) { e.preventDefault(); actions.edit(mine); }
  }
}

// Another tab may have gone on with a chat: what it wrote counts, unless an answer runs here or a message is edited.
async function lookAgain(told, anyway) {
  if ((document.hidden && told !== true) || running.has(chat.id) || document.querySelector(".edit")) return;
  await store.refresh();
  const head = store.list().find(h => h.id === chat.id);
  if (head && (anyway === true || head.updated > chat.updated)) openChat(chat.id); else drawList();
}

function wire() {
  const on = (id, event, act) => $(id).addEventListener(event, act);
  on("form", "submit", e => { e.preventDefault(); send(); });
  on("input", "keydown", e => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } });
  on("input", "input", grow);
  on("stop", "click", () => running.has(chat.id) && running.get(chat.id).abort());
  on("clear", "click", () => { showChat(newChat(systemText())); $("input").focus(); });
  on("keybutton", "click", askKey);
  on("attach", "click", () => $("file").click());
  on("file", "change", e => { attach([...e.target.files]); e.target.value = ""; });
  on("settingsbutton", "click", () => { fillSettings(); $("settings").showModal(); });
  on("settings", "close", readSettings);
  on("settings", "input", readSettings);
  on("theme", "click", () => setTheme({ auto: "light", light: "dark", dark: "auto" }[document.documentElement.dataset.theme]));
  on("sidebutton", "click", () => toggle("side"));
  on("livebutton", "click", () => toggle("live"));
  keepEnd();
  on("shade", "click", () => { toggle("side", false); toggle("live", false); });
  on("search", "input", drawList);
  on("import", "click", () => $("importfile").click());
  on("importfile", "change", e => { for (const f of e.target.files) importFile(f); e.target.value = ""; });
  on("models", "change", e => { store.setting("model", e.target.value); about(); });
  on("chat", "dragover", e => e.preventDefault());
  on("chat", "drop", e => { e.preventDefault(); attach([...e.dataTransfer.files]); });
  on("input", "paste", e => { if (e.clipboardData.files.length) { e.preventDefault(); attach([...e.clipboardData.files]); } });
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", lookAgain);
  window.addEventListener("pagehide", () => { for (const id of running.keys()) { store.tell({ id, running: false }); dropStream(id); } });
  setInterval(beat, BEAT_MS);
  window.addEventListener("resize", grow);
}

async function main() {
  setTheme(store.setting("theme") || "auto");
  NARROW.addEventListener("change", openPanels);
  openPanels();
  chat = newChat(systemText());
  wire();
  await store.openStore();
  $("unkept").hidden = store.keeps();
  fillSettings();
  drawAll();
  store.listen(fromElsewhere);
  store.tell({ asks: true });
  if (location.hash.length > 1) await openChat(location.hash.slice(1));
  if (!PHONE.matches) $("input").focus();       // a phone would open its keyboard
  start();
}

main();
