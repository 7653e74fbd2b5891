// store.js: what the browser keeps: chats in IndexedDB (their heads apart, for the list), settings in localStorage.  If a
// browser refuses either, they last as long as the page, and keeps() says so.

let db = null;
const others = typeof BroadcastChannel === "function" ? new BroadcastChannel("kvant") : null;
const heads = new Map(), chats = new Map(), loose = {};

function asked(request) {
  return new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = request.onblocked = () => failed(request.error);
  });
}

export async function openStore() {
  try {
    const request = indexedDB.open("kvant", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("heads", { keyPath: "id" });
      request.result.createObjectStore("chats", { keyPath: "id" });
    };
    db = await asked(request);
    await refresh();
  } catch { db = null; }
}

// Reads the heads that other tabs wrote meanwhile.
export async function refresh() {
  if (!db) return;
  const now = await asked(db.transaction("heads").objectStore("heads").getAll());
  heads.clear();
  for (const head of now) heads.set(head.id, head);
  for (const [id, chat] of chats) if (!heads.has(id) || heads.get(id).updated > chat.updated) chats.delete(id);
}

export function keeps() { return db !== null; }

// The newest first.
export function list() { return [...heads.values()].sort((a, b) => b.updated - a.updated); }

export async function load(id) {
  if (!chats.has(id) && db) {
    const chat = await asked(db.transaction("chats").objectStore("chats").get(id));
    if (chat) chats.set(id, chat);
  }
  return chats.get(id) || null;
}

function write(change) {
  if (!db) return Promise.resolve();
  const t = db.transaction(["heads", "chats"], "readwrite");
  change(t.objectStore("heads"), t.objectStore("chats"));
  return new Promise((done, failed) => {
    t.oncomplete = done;
    t.onabort = t.onerror = () => failed(t.error || new Error("not stored"));
  });
}

// told({id, running, wrote}): another window answers this chat or does so no more, and wrote it; told({asks}): it asks for this.
export function listen(told) { if (others) others.onmessage = e => told(e.data); }

export function tell(news) { if (others && db) others.postMessage(news); }

// The next load() reads the chat as another window wrote it.
export function forget(id) { if (db) chats.delete(id); }

// Ids of the chats that have this text (in small letters) in their title or in a message.
export async function withText(text) {
  const all = db ? await asked(db.transaction("chats").objectStore("chats").getAll()) : [...chats.values()];
  const has = v => typeof v === "string" && v.toLowerCase().includes(text);
  return new Set(all.filter(c => has(c.title) || (c.messages || []).some(m => m && has(m.content))).map(c => c.id));
}

export async function save(chat) {
  const head = { id: chat.id, title: chat.title, updated: chat.updated };
  chats.set(chat.id, chat);
  heads.set(chat.id, head);
  await write((h, c) => { h.put(head); c.put(chat); });
  const last = chat.messages[chat.messages.length - 1];
  tell({ id: chat.id, running: !!last && last.state === "running", wrote: true });
}

export async function remove(id) {
  chats.delete(id);
  heads.delete(id);
  await write((h, c) => { h.delete(id); c.delete(id); });
  tell({ id, running: false, wrote: true });
}

export function setting(name, value) {
  const key = "kvant-" + name;
  try {
    if (value !== undefined) localStorage.setItem(key, JSON.stringify(value));
    return JSON.parse(localStorage.getItem(key));
  } catch {
    if (value !== undefined) loose[key] = value;
    return loose[key] === undefined ? null : loose[key];
  }
}
