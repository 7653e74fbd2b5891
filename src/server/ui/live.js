// live.js: the live view over /debug/events: tokens per second, what the cache holds, the slots.
import { base, headers, readEvents, troubleFrom } from "./chat.js";

const $ = id => document.getElementById(id);
const SECONDS = 120;
let points = [], last = null;

function size(bytes) { return bytes >= 1048576 ? (bytes / 1048576).toFixed(1) + " MiB" : Math.round(bytes / 1024) + " KiB"; }

function drawRate() {
  const c = $("rate"), ratio = window.devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight, g = c.getContext("2d");
  if (!w) return;       // the view is closed
  c.width = w * ratio;
  c.height = h * ratio;
  g.scale(ratio, ratio);
  const most = Math.max(1, ...points.map(p => Math.max(p.gen, p.prompt))) * 1.1;
  g.fillStyle = getComputedStyle(c).color;
  g.font = "11px sans-serif";
  g.fillText(Math.round(most) + " t/s", 4, 12);
  for (const name of ["prompt", "gen"]) {
    g.strokeStyle = getComputedStyle(document.querySelector(".key." + name)).backgroundColor;
    g.lineWidth = 2;
    g.beginPath();
    points.forEach((p, i) => {
      const x = w - (points.length - 1 - i) * (w / SECONDS), y = h - 2 - p[name] / most * (h - 18);
      if (i) g.lineTo(x, y); else g.moveTo(x, y);
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
  if (last && s.time > last.time && s.model === last.model) {
    const dt = s.time - last.time;
    points.push({ gen: (s.generated_tokens - last.generated_tokens) / dt, prompt: (s.computed_tokens - last.computed_tokens) / dt });
    points = points.slice(-SECONDS);
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

export function status(text, on) {
  if (!on) { $("counts").textContent = "unknown: " + text; $("tps").textContent = $("pps").textContent = "–"; $("slots").tBodies[0].replaceChildren(); }
  $("status").textContent = text;
  $("status").title = text;
  $("status").className = on ? "on" : "off";
}

let generation = 0;

// Follows the server until it asks for a key; a later call takes the place of this one.  known(): it answers (again).
export async function followLive(known) {
  const mine = ++generation;
  while (mine === generation) {
    try {
      const response = await fetch(base + "/debug/events", { headers: headers() });
      $("keybutton").hidden = response.status !== 403 && response.status !== 401;
      if (response.status === 403) { known(); status("connected; the live view wants the admin key", true); return; }
      if (response.status === 401) { status("API key wanted", false); return; }
      if (!response.ok) throw await troubleFrom(response);
      status("connected", true);
      known();
      await readEvents(response, data => showLive(JSON.parse(data)));
      status("disconnected", false);
    } catch (e) { status(e instanceof TypeError ? "the server does not answer" : e.message, false); }
    await new Promise(done => setTimeout(done, 2000));
  }
}
