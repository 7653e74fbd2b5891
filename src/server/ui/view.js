// view.js: the messages of a chat on the page.  Text of people is set as text, that of the model goes through markdown.js.
// Each message keeps its box, so that a stream redraws only the message that grows.
import { copy } from "./code.js";
import { render } from "./markdown.js";

const $ = id => document.getElementById(id);
const DRAW_MS = 50;
const boxes = new WeakMap();

export function make(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

export function button(label, act, title) {
  const b = make("button", "", label);
  b.type = "button";
  if (title) b.title = title;
  b.addEventListener("click", () => act(b));
  return b;
}

function folded(className, label, open) {
  const details = make("details", className);
  details.open = open;
  details.append(make("summary", "", label));
  return details;
}

function atEnd(box) { return box.scrollHeight - box.scrollTop - box.clientHeight < 80; }

// A panel that opens, a phone that is turned: who read the end still reads it.
export function keepEnd() {
  const box = $("messages");
  let end = true;
  box.addEventListener("scroll", () => { end = atEnd(box); });
  new ResizeObserver(() => { if (end) box.scrollTop = box.scrollHeight; }).observe(box);
}

// ---- a message of a person, or a tool's result ----

function fileView(file) {
  const box = folded("file", `${file.name} · ${file.text.length.toLocaleString("en")} characters`, false);
  box.append(make("pre", "", file.text));
  return box;
}

function drawUser(m, body) {
  body.replaceChildren(...(m.files || []).map(fileView), make("div", "plain", m.content));
}

function drawTool(m, body) {
  const box = folded("call", "Result of " + m.name, false);
  box.append(make("pre", "", m.content));
  body.replaceChildren(box);
}

// ---- an answer ----

function thoughtView(m, body) {
  let box = body.querySelector(".thought");
  if (!box) {
    box = folded("thought", "", false);
    box.append(make("div", "markdown"));
    body.prepend(box);
  }
  const thinking = m.state === "running" && !m.content && !m.calls.length;
  box.firstChild.textContent = thinking ? "Thinking …" : m.thoughtSeconds ? `Thought for ${m.thoughtSeconds.toFixed(1)} s` : "Thought";
  render(box.lastChild, m.thought);
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function drawAnswer(m, body) {
  if (!body.firstChild) body.append(make("div", "markdown text"), make("div", "calls"));
  if (m.thought) thoughtView(m, body);
  render(body.querySelector(".text"), m.content);
  const calls = body.querySelector(".calls");
  m.calls.forEach((c, i) => {
    const box = calls.children[i] || calls.appendChild(folded("call", "", false));
    box.firstChild.textContent = "Tool call: " + c.name;
    if (!box.children[1]) box.append(make("pre"));
    box.children[1].textContent = pretty(c.arguments);
  });
}

function resultForm(m, actions) {
  const form = make("div", "results");
  const fields = m.calls.map(c => {
    const label = make("label", "", "Result of " + c.name), area = make("textarea");
    area.rows = 2;
    label.append(area);
    form.append(label);
    return area;
  });
  form.append(button("Send results", () => actions.results(m, fields.map(f => f.value))));
  return form;
}

const STATES = { stopped: "stopped", cut: "the connection ended here", length: "ended at the limit of tokens or of the context" };

// Which of the versions is shown, and the way to the others.
function versionsView(m, v, actions) {
  const box = make("span", "versions"), step = (sign, by, what) => {
    const b = button(sign, () => actions.version(m, by), what);
    b.setAttribute("aria-label", what);
    b.disabled = !v.list[v.shown + by];
    return b;
  };
  box.append(step("‹", -1, "The version before"), make("span", "", `${v.shown + 1}/${v.list.length}`), step("›", 1, "The next version"));
  return box;
}

function footView(m, last, actions, versions) {
  const foot = make("div", "foot"), note = [STATES[m.state], m.note].filter(Boolean).join(" · ");
  if (versions && versions.list.length > 1) foot.append(versionsView(m, versions, actions));
  if (m.role !== "tool") {
    foot.append(button("Copy", b => copy(m.content, b)), button("Edit", () => actions.edit(m)));
    if (m.role === "assistant") foot.append(button("Again", () => actions.again(m), "Answer anew from here; what follows stays as an earlier version"));
    else foot.append(button("Resend", () => actions.resend(m), "Answer this message anew; what follows stays as an earlier version"));
    if (last && STATES[m.state] && m.content) foot.append(button("Continue", () => actions.goOn(m)));
  }
  if (m.role === "assistant") foot.append(make("span", "meta", note));
  return foot;
}

const DRAW = { user: drawUser, assistant: drawAnswer, tool: drawTool };

function drawMessage(m, last, actions, versions) {
  let box = boxes.get(m);
  if (!box) {
    box = make("article", "message " + m.role);
    box.append(make("div", "who", m.role === "user" ? "You" : m.role === "tool" ? "Tool" : m.model), make("div", "body"), make("div", "foot"));
    boxes.set(m, box);
  }
  if (box.editing) return box;
  DRAW[m.role](m, box.children[1]);
  box.classList.toggle("running", m.state === "running");
  if (m.state !== "running") box.children[2].replaceWith(footView(m, last, actions, versions));
  else box.children[2].replaceChildren();
  if (last && m.state === "whole" && m.calls && m.calls.length) box.children[2].prepend(resultForm(m, actions));
  return box;
}

// The whole chat.
export function drawChat(chat, actions) {
  const messages = $("messages"), end = atEnd(messages), last = chat.messages[chat.messages.length - 1];
  const wanted = chat.messages.map((m, i) => drawMessage(m, m === last, actions, (i ? chat.messages[i - 1] : chat).versions));
  for (const box of [...messages.children]) if (!wanted.includes(box)) box.remove();
  wanted.forEach((box, i) => { if (messages.children[i] !== box) messages.insertBefore(box, messages.children[i] || null); });
  messages.setAttribute("aria-busy", String(!!last && last.state === "running"));
  $("hello").hidden = chat.messages.length > 0;
  if (end) messages.scrollTop = messages.scrollHeight;
}

let waiting = 0;

// The message that grows; at most every DRAW_MS.  isShown(): its chat is the one on the page.
export function drawGrowing(m, isShown) {
  if (waiting) return;
  waiting = setTimeout(() => {
    waiting = 0;
    const box = boxes.get(m), messages = $("messages"), end = atEnd(messages);
    if (!box || !isShown() || m.state !== "running") return;
    DRAW[m.role](m, box.children[1]);
    if (end) messages.scrollTop = messages.scrollHeight;
  }, DRAW_MS);
}

// Puts a field in the place of the text.  done(new text or null).
export function editMessage(m, label, done) {
  const box = boxes.get(m), area = make("textarea", "edit"), row = make("div", "row"), body = box.children[1], foot = box.children[2];
  const end = text => {
    box.editing = false;
    area.remove();
    row.remove();
    body.hidden = foot.hidden = false;
    done(text);
  };
  box.editing = true;
  body.hidden = foot.hidden = true;
  area.value = m.content;
  area.setAttribute("aria-label", "Edit the message");
  area.rows = Math.min(12, m.content.split("\n").length + 1);
  area.addEventListener("keydown", e => {
    if (e.key === "Escape") { e.stopPropagation(); end(null); }
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) end(area.value);
  });
  const save = button(label, () => end(area.value));
  save.className = "main";
  row.append(save, button("Cancel", () => end(null)));
  box.append(area, row);
  area.focus();
}

// An error in words and what to do about it; null: none.
export function showTrouble(trouble) {
  const box = $("trouble");
  box.hidden = !trouble;
  box.replaceChildren();
  if (!trouble) return;
  box.append(make("b", "", trouble.message), make("span", "", trouble.advice || ""), button("✕", () => showTrouble(null), "Close"));
  box.lastChild.setAttribute("aria-label", "Close");
}
