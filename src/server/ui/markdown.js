// markdown.js: text of a model as DOM nodes: paragraphs, headings, lists, tables, quotes, rules, code.  HTML stays text, a
// picture becomes a link (nothing is loaded from elsewhere), and links lead to http, https and mailto alone.  Every search
// that fails is remembered, so that the time grows with the length of the text, whatever is in it.
import { codeBlock } from "./code.js";

const MOST_NESTED = 8, MOST_LABEL = 1000, MOST_URL = 2000, MOST_MATH = 2000, MOST_MATH_LINES = 60, MOST_MATH_PARTS = 4000;
// Commands that define others: a few of them make megabytes of a short formula, whatever maxExpand says.
const DEFINES = /\\(?:[egx]?def|let|futurelet|(?:re)?newcommand|providecommand)(?![A-Za-z@])/;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

function element(name, className = "") {
  const e = document.createElement(name);
  if (className) e.className = className;
  return e;
}

function indentOf(line) { return line.length - line.trimStart().length; }

// ---- blocks: a taker gets the lines and the first one's number, and gives [block, number of the line behind it] or null ----

function takeFence(lines, i) {
  const m = FENCE.exec(lines[i]);
  if (!m) return null;
  const indent = indentOf(lines[i]), text = [];
  for (i++; i < lines.length; i++) {
    const end = lines[i].trim();
    if (end.length >= m[1].length && end === m[1][0].repeat(end.length)) { i++; break; }
    text.push(lines[i].slice(Math.min(indentOf(lines[i]), indent)));
  }
  return [{ type: "code", language: m[2].trim().split(/\s/)[0], text: text.join("\n") }, i];
}

// A formula on lines of its own: \[ .. \] or $$ .. $$.
function takeMath(lines, i) {
  const line = lines[i].trim(), end = line.startsWith("\\[") ? "\\]" : line.startsWith("$$") ? "$$" : null;
  if (!end) return null;
  const text = [];
  for (let k = i, size = 0; k < lines.length && k - i < MOST_MATH_LINES && lines[k].trim(); k++) {
    if ((size += lines[k].length + 1) > MOST_MATH) return null;
    const part = k === i ? line.slice(2) : lines[k].trim();
    if (part.endsWith(end)) return [{ type: "math", text: [...text, part.slice(0, -2)].join("\n"), source: lines.slice(i, k + 1).join("\n") }, k + 1];
    text.push(part);
  }
  return null;
}

function takeHeading(lines, i) {
  const m = HEADING.exec(lines[i]);
  return m && [{ type: "h" + m[1].length, text: m[2].trimEnd().replace(/[ \t]#+$/, "") }, i + 1];
}

function takeRule(lines, i) { return RULE.test(lines[i]) ? [{ type: "hr" }, i + 1] : null; }

function takeQuote(lines, i, depth) {
  const inner = [];
  for (let m; i < lines.length && (m = QUOTE.exec(lines[i])); i++) inner.push(m[1]);
  return inner.length ? [{ type: "quote", blocks: parse(inner, depth + 1) }, i] : null;
}

// The lines that belong to a list item that begins before line i; a line that is indented by two more than the item does.
function itemLines(lines, i, indent, offset) {
  const body = [];
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (!line.trim()) {
      let next = i;
      while (next < lines.length && !lines[next].trim()) next++;
      if (next === lines.length || indentOf(lines[next]) < indent + 2) return [body, next];
      body.push("");
      i = next - 1;
    } else if (indentOf(line) >= indent + 2) body.push(line.slice(Math.min(indentOf(line), offset)));
    else if (startsBlock(lines, i)) return [body, i];
    else body.push(line.trim());
  }
  return [body, i];
}

function takeList(lines, i, depth) {
  const first = ITEM.exec(lines[i]);
  if (!first) return null;
  const indent = first[1].length, ordered = /\d/.test(first[2]), items = [];
  for (let m; i < lines.length && (m = ITEM.exec(lines[i])) && !RULE.test(lines[i]); ) {
    if (/\d/.test(m[2]) !== ordered || m[1].length >= indent + 2 || m[1].length + 2 <= indent) break;
    const [rest, next] = itemLines(lines, i + 1, m[1].length, m[1].length + m[2].length + 1);
    const box = /^\[([ xX])\] +(.*)$/.exec(m[3] || "");
    items.push({ check: box && box[1] !== " ", task: !!box, blocks: parse([box ? box[2] : m[3] || "", ...rest], depth + 1) });
    i = next;
  }
  return [{ type: "list", ordered, start: parseInt(first[2], 10), items }, i];
}

function cells(line) {
  const out = [""], text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") out[out.length - 1] += text[++i];
    else if (text[i] === "|") out.push("");
    else out[out.length - 1] += text[i];
  }
  if (out.length > 1 && !out[out.length - 1].trim()) out.pop();
  return out.map(c => c.trim());
}

function isTable(lines, i) {
  return lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && TABLE_RULE.test(lines[i + 1]) &&
         cells(lines[i]).length === cells(lines[i + 1]).length;
}

function takeTable(lines, i) {
  if (!isTable(lines, i)) return null;
  const head = cells(lines[i]), rows = [];
  const align = cells(lines[i + 1]).map(c => c.endsWith(":") ? c.startsWith(":") ? "center" : "right" : "");
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) rows.push(cells(lines[i]).slice(0, head.length));
  return [{ type: "table", head, align, rows }, i];
}

function takeParagraph(lines, i) {
  const text = [lines[i].trim()];
  for (i++; i < lines.length && lines[i].trim() && !startsBlock(lines, i); i++) text.push(lines[i].trim());
  return [{ type: "p", text: text.join("\n") }, i];
}

function startsBlock(lines, i) {
  const item = ITEM.exec(lines[i]);
  return FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) || !!(item && item[3]) || isTable(lines, i);
}

const TAKERS = [takeFence, takeMath, takeHeading, takeRule, takeQuote, takeList, takeTable, takeParagraph];

// Blocks; `source` is what a block was made of, so that a block that did not change is not drawn again.
function parse(lines, depth = 0) {
  const out = [], takers = depth < MOST_NESTED ? TAKERS : [takeParagraph];
  for (let i = 0; i < lines.length; ) {
    if (!lines[i].trim()) { i++; continue; }
    let found = null;
    for (const take of takers) if ((found = take(lines, i, depth))) break;
    found[0].source = depth ? "" : lines.slice(i, found[1]).join("\n");
    out.push(found[0]);
    i = found[1];
  }
  return out;
}

// ---- inside a line ----

function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch { return null; }
}

function link(url) {
  const a = element("a");
  a.href = url;
  a.title = url;
  a.target = "_blank";
  a.rel = "noopener noreferrer nofollow";
  return a;
}

const WORD = /[\p{L}\p{N}]/u;

// Returns the index of the `mark` that closes one that opened before `from`, or -1.
function closing(text, mark, from) {
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
    const before = text[at - 1], after = text[at + mark.length] || " ";
    if (at === from || /\s|\\/.test(before)) continue;
    if (mark.length === 1 && (before === mark || after === mark)) continue;
    if (mark[0] === "_" && WORD.test(after)) continue;
    return at;
  }
  return -1;
}

const MARKS = [["***", "strong", "em"], ["___", "strong", "em"], ["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

// The inline takers get {text, failed, closes, depth} (closes: close of a formula: its next place, or -1) and a place; they give [node, place behind it] or null.
function takeMark(s, at) {
  for (const [mark, ...names] of MARKS) {
    if (!s.text.startsWith(mark, at) || s.failed.has(mark) || /\s/.test(s.text[at + mark.length] || " ")) continue;
    if (mark[0] === "_" && at && WORD.test(s.text[at - 1])) continue;
    const end = closing(s.text, mark, at + mark.length);
    if (end < 0) { s.failed.add(mark); continue; }
    const node = element(names[0]), inner = names[1] ? node.appendChild(element(names[1])) : node;
    inline(s.text.slice(at + mark.length, end), inner, s.depth + 1);
    return [node, end + mark.length];
  }
  return null;
}

function takeCode(s, at) {
  let n = 1;
  while (s.text[at + n] === "`") n++;
  const mark = "`".repeat(n);
  let end = s.failed.has(mark) ? -1 : s.text.indexOf(mark, at + n);
  for (let k; end >= 0; end = s.text.indexOf(mark, end + k)) {
    for (k = n; s.text[end + k] === "`"; ) k++;
    if (k === n) break;
  }
  if (end < 0) { s.failed.add(mark); return [document.createTextNode(mark), at + n]; }
  const node = element("code"), text = s.text.slice(at + n, end);
  node.textContent = /^ .*\S.* $/s.test(text) ? text.slice(1, -1) : text;
  return [node, end + n];
}

function takeLink(s, at) {
  let end = at + 1;
  for (let open = 1; end < s.text.length && end - at < MOST_LABEL; end++) {
    if (s.text[end] === "\\") end++;
    else if (s.text[end] === "[") open++;
    else if (s.text[end] === "]" && !--open) break;
  }
  if (s.text[end] !== "]" || s.text[end + 1] !== "(") return null;
  const m = /^\(\s*<?((?:[^\s()<>]|\([^\s()]*\))+)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(s.text.slice(end + 1, end + 1 + MOST_URL));
  const url = m && safeUrl(m[1]);
  if (!url) return null;
  const node = link(url);
  inline(s.text.slice(at + 1, end), node, s.depth + 1, true);
  return [node, end + 1 + m[0].length];
}

function takePicture(s, at) {
  const found = s.text[at + 1] === "[" ? takeLink(s, at + 1) : null;
  if (!found) return null;
  found[0].prepend("picture: ");
  return found;
}

function takeUrl(s, at) {
  const angle = s.text[at] === "<", from = angle ? at + 1 : at;
  const m = /^https?:\/\/[^\s<>"'`|]+/.exec(s.text.slice(from, from + MOST_URL));
  if (!m || (angle && s.text[from + m[0].length] !== ">")) return null;
  let text = m[0];
  while (!angle && (/[.,;:!?*_~\]]$/.test(text) || (text.endsWith(")") && !text.includes("(")))) text = text.slice(0, -1);
  const url = safeUrl(text);
  if (!url) return null;
  const node = link(url);
  node.textContent = text;
  return [node, from + text.length + (angle ? 1 : 0)];
}

// A formula as MathML, by KaTeX where the server was built with it; else, and where KaTeX refuses it, as it was written; so
// is one that defines commands, and one of which too much would come.
function formula(text, whole, display) {
  const node = element("span", display ? "math display" : "math");
  try {
    if (window.katex && !DEFINES.test(text)) {
      katex.render(text, node, { output: "mathml", displayMode: display, throwOnError: true, trust: false, maxExpand: 200, maxSize: 20, strict: "ignore" });
      if (node.getElementsByTagName("*").length <= MOST_MATH_PARTS) return node;
    }
  } catch { /* shown as it is */ }
  const code = element("code");
  code.textContent = whole;
  return code;
}

// fits(place of the close): false where it ends no formula.
function takeFormula(s, at, open, close, display, fits = () => true) {
  const from = at + open.length;
  if (!s.closes.has(close) || (s.closes.get(close) >= 0 && s.closes.get(close) < from)) s.closes.set(close, s.text.indexOf(close, from));
  const end = s.closes.get(close);
  if (end <= from || end - at > MOST_MATH || !fits(end)) return null;
  return [formula(s.text.slice(from, end), s.text.slice(at, end + close.length), display), end + close.length];
}

// $x$ is a formula, "$5 and $6" is not: no blank stands behind the first or before the last, and no digit behind it.
function takeDollar(s, at) {
  if (s.text[at + 1] === "$") return takeFormula(s, at, "$$", "$$", true);
  if (/\s/.test(s.text[at + 1] || " ")) return null;
  return takeFormula(s, at, "$", "$", false, end => !/[\s\\]/.test(s.text[end - 1]) && !/\d/.test(s.text[end + 1] || ""));
}

function takeEscape(s, at) {
  const math = s.text[at + 1] === "(" ? takeFormula(s, at, "\\(", "\\)", false) : s.text[at + 1] === "[" ? takeFormula(s, at, "\\[", "\\]", true) : null;
  if (math) return math;
  const next = s.text[at + 1] || "";
  return /[!-/:-@[-`{-~]/.test(next) ? [document.createTextNode(next), at + 2] : null;
}

const INLINE = { "\\": takeEscape, $: takeDollar, "`": takeCode, "*": takeMark, "_": takeMark, "~": takeMark, "[": takeLink, "!": takePicture, "<": takeUrl, h: takeUrl };

function inline(text, parent, depth = 0, inLink = false) {
  const s = { text, failed: new Set(), closes: new Map(), depth }, special = /[\\$`*_~[!<]|https?:\/\//g;
  let plain = 0;
  for (let m; depth < MOST_NESTED && (m = special.exec(text)); ) {
    const take = INLINE[m[0][0]], found = inLink && (take === takeLink || take === takeUrl) ? null : take(s, m.index);
    if (!found) { special.lastIndex = m.index + 1; continue; }
    parent.append(text.slice(plain, m.index), found[0]);
    plain = special.lastIndex = found[1];
  }
  parent.append(text.slice(plain));
}

// ---- drawing ----

function drawList(b) {
  const list = element(b.ordered ? "ol" : "ul");
  if (b.ordered) list.start = b.start;
  for (const item of b.items) {
    const li = element("li", item.task ? "task" : "");
    if (item.task) {
      const box = element("input");
      Object.assign(box, { type: "checkbox", checked: item.check, disabled: true });
      li.append(box);
    }
    const tight = item.blocks.length && item.blocks[0].type === "p";
    if (tight) inline(item.blocks[0].text, li.appendChild(element("span")));
    li.append(...item.blocks.slice(tight ? 1 : 0).map(draw));
    list.append(li);
  }
  return list;
}

function drawTable(b) {
  const frame = element("div", "tablebox"), table = frame.appendChild(element("table"));
  const row = (to, texts, name) => {
    const tr = to.appendChild(element("tr"));
    b.head.forEach((_, i) => inline(texts[i] || "", tr.appendChild(element(name, b.align[i]))));
  };
  frame.tabIndex = 0;
  row(table.appendChild(element("thead")), b.head, "th");
  const body = table.appendChild(element("tbody"));
  for (const r of b.rows) row(body, r, "td");
  return frame;
}

function draw(b) {
  if (b.type === "code") return codeBlock(b.text, b.language);
  if (b.type === "list") return drawList(b);
  if (b.type === "math") {
    const p = element("p");
    p.append(formula(b.text, b.source, true));
    return p;
  }
  if (b.type === "table") return drawTable(b);
  const node = element(b.type === "quote" ? "blockquote" : b.type);
  if (b.type === "quote") node.append(...b.blocks.map(draw));
  else if (b.text) inline(b.text, node);
  return node;
}

// Makes `target` show the text; blocks that are there already and did not change stay as they are (and keep a selection).
export function render(target, text) {
  const blocks = parse(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n")), old = target.children;
  let same = 0;
  while (same < blocks.length && same < old.length && old[same].source === blocks[same].source) same++;
  while (old.length > same) target.lastChild.remove();
  for (const b of blocks.slice(same)) {
    const node = draw(b);
    node.source = b.source;
    target.append(node);
  }
}
