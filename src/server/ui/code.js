// code.js: a block of code with its language, a button that copies it, and colours for what most languages share: comments,
// strings, numbers, and words that are keywords in many of them.

const KEYWORDS = new Set(("abstract and as assert async await auto begin bool boolean break byte case catch char class const continue def default defer del delete do done " +
  "double echo elif else elseif elsif end enum esac except export extends extern false fi final finally float fn for foreach from func function global go goto if impl " +
  "implements import in include inline instanceof int interface is lambda let local long loop match mod module move mut namespace new nil none not null " +
  "nullptr of operator or package pass private protected pub public raise ref register require return self short signed sizeof static struct super " +
  "switch template then this throw throws trait true try type typedef typename undefined union unless unsafe unsigned until use using val var " +
  "virtual void volatile when where while with yield select insert update create table join group order by values set limit").split(" "));
const HASH = /^(py|python|sh|bash|shell|zsh|console|rb|ruby|ya?ml|toml|perl|r|make|makefile|cmake|dockerfile|ini|conf|nix|elixir|julia)$/i;
const DASH = /^(sql|lua|haskell|hs|ada|vhdl|elm)$/i;
const PLAIN = /^(text|txt|plain|output|log|md|markdown)?$/i;
const MOST_COLOURED = 200000;

function comments(language) {
  if (HASH.test(language)) return "#[^\\n]*";
  if (DASH.test(language)) return "--[^\\n]*";
  if (/^(html|xml|svg|vue)$/i.test(language)) return "<!--[\\s\\S]*?(?:-->|$)";
  return "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)";
}

function colour(to, text, language) {
  const parts = new RegExp(`(${comments(language)})|("(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`[^\`]*\`?)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, "g");
  let plain = 0;
  for (const m of text.matchAll(parts)) {
    const kind = m[1] ? "comment" : m[2] ? "string" : m[3] ? "number" : KEYWORDS.has(m[4]) || KEYWORDS.has(m[4].toLowerCase()) ? "keyword" : "";
    if (!kind) continue;
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = m[0];
    to.append(text.slice(plain, m.index), span);
    plain = m.index + m[0].length;
  }
  to.append(text.slice(plain));
}

// Copies; the second way is for pages that came over plain http from another machine, where browsers withhold the first.
export async function copy(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = done ? "Copied" : "Not copied";
  button.disabled = true;
  setTimeout(() => { button.textContent = label; button.disabled = false; }, 1200);
}

export function codeBlock(text, language) {
  const box = document.createElement("div"), head = document.createElement("div"), name = document.createElement("span");
  const button = document.createElement("button"), pre = document.createElement("pre"), code = document.createElement("code");
  box.className = "code";
  head.className = "codehead";
  name.textContent = language || "text";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => copy(text, button));
  pre.tabIndex = 0;
  if (PLAIN.test(language) || text.length > MOST_COLOURED) code.textContent = text;
  else colour(code, text, language);
  head.append(name, button);
  pre.append(code);
  box.append(head, pre);
  return box;
}
