// Markdown to elements, block by block, for text that is still growing. No HTML in it is ever interpreted, links lead
// to http, https and mailto only, and images become links: a page must not load what a model names.

import { el } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}>\s?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Cuts text into blocks. All but the last stay what they are when text is added. */
export function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const start = at;
    const fence = FENCE.exec(lines[at]);
    if (fence) {
      at += 1;
      while (at < lines.length && !isFenceEnd(lines[at], fence[1])) at += 1;
      at = Math.min(lines.length, at + 1);
    } else if (HEADING.test(lines[at]) || RULE.test(lines[at])) {
      at += 1;
    } else {
      at = endOfBlock(lines, at);
    }
    found.push(lines.slice(start, at).join("\n"));
  }
  return found;
}

function isFenceEnd(line, fence) {
  const trimmed = line.trim();
  return trimmed.length >= fence.length && trimmed === fence[0].repeat(trimmed.length);
}

function isSameList(first, line) {
  const [one, other] = [ITEM.exec(first), ITEM.exec(line)];
  return other !== null && (other[1].length > one[1].length || /\d/.test(one[2]) === /\d/.test(other[2]));
}

function endOfBlock(lines, start) {
  const isList = ITEM.test(lines[start]);
  let at = start + 1;
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === "") {
      // A list goes on after an empty line if what follows belongs to it.
      const next = lines[at + 1];
      if (!isList || next === undefined || !(isSameList(lines[start], next) || /^\s{2,}\S/.test(next))) return at;
    } else if (!isList && (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line))) {
      return at;
    } else if (isList && !ITEM.test(line) && !/^\s+\S/.test(line) && lines[at - 1].trim() === "") {
      return at;
    }
    at += 1;
  }
  return at;
}

/** `above` is the level of the heading before: none may be more than one below it, whatever the text says. */
export function renderBlock(source, above = 1) {
  const lines = source.split("\n");
  const fence = FENCE.exec(lines[0]);
  if (fence) return code(lines, fence);
  const heading = HEADING.exec(lines[0]);
  if (heading && lines.length === 1) {
    return el(`h${Math.min(6, heading[1].length + 1, above + 1)}`, {}, ...inline(heading[2]));
  }
  if (RULE.test(lines[0]) && lines.length === 1) return el("hr");
  if (QUOTE.test(lines[0])) {
    const inner = lines.map((line) => line.replace(QUOTE, "")).join("\n");
    return el("blockquote", {}, ...blocks(inner).map((inner) => renderBlock(inner)));
  }
  if (lines.length > 1 && lines[0].includes("|") && DIVIDER.test(lines[1])) return table(lines);
  if (ITEM.test(lines[0])) return list(lines);
  return el("p", {}, ...inline(lines.join("\n")));
}

function code(lines, fence) {
  const last = lines.length > 1 && isFenceEnd(lines.at(-1), fence[1]) ? -1 : undefined;
  const text = lines.slice(1, last).join("\n");
  const language = fence[2].trim().split(/\s/)[0];
  const copy = el("button", { type: "button", class: "copy quiet", "aria-label": "Copy the code" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const head = el("div", { class: "code-head" }, el("span", {}, language || "text"), copy);
  return el("div", { class: "code" }, head, el("pre", { tabindex: "0" }, el("code", {}, text)));
}

function table(lines) {
  const cells = (line) =>
    line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
  const head = cells(lines[0]);
  const rows = lines.slice(2).map(cells);
  return el(
    "div",
    { class: "table", tabindex: "0" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", { scope: "col" }, ...inline(cell))))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...head.map((_, i) => el("td", {}, ...inline(row[i] ?? "")))))),
    ),
  );
}

function list(lines) {
  const first = ITEM.exec(lines[0]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) items.push([item[4]]);
    else items.at(-1).push(line.replace(new RegExp(`^\\s{0,${indent + first[2].length + 1}}`), ""));
  }
  const rendered = items.map((content) => {
    const parts = blocks(content.join("\n"));
    const single = parts.length === 1 && !ITEM.test(parts[0]) && !FENCE.test(parts[0].split("\n")[0]);
    if (single) return el("li", {}, ...inline(parts[0]));
    return el("li", {}, ...parts.map((part, i) => (i === 0 && !ITEM.test(part) ? el("span", {}, ...inline(part)) : renderBlock(part))));
  });
  return ordered
    ? el("ol", { start: parseInt(first[2], 10) === 1 ? null : parseInt(first[2], 10) }, ...rendered)
    : el("ul", {}, ...rendered);
}

const INLINE =
  /(`+)([\s\S]*?[^`])\1(?!`)|!?\[([^\]\n]*)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)|\*\*([\s\S]+?)\*\*(?!\*)|__([\s\S]+?)__(?!\w)|~~([\s\S]+?)~~|(?<![\w*])\*([^\s*](?:[\s\S]*?[^\s*])?)\*(?!\*)|(?<![\w_])_([^\s_](?:[\s\S]*?[^\s_])?)_(?!\w)|(https?:\/\/[^\s<>()]*[^\s<>().,;:!?'"])|\\([\\`*_{}[\]()#+\-.!|~>])|( {2,}\n|\\\n)/g;

export function inline(text, depth = 0) {
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    at = match.index + match[0].length;
    nodes.push(span(match, depth));
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

function span(match, depth) {
  const [whole, , codeText, label, target, strong1, strong2, strike, em1, em2, bare, escaped, lineBreak] = match;
  if (lineBreak !== undefined) return el("br");
  if (escaped !== undefined) return escaped;
  if (codeText !== undefined) return el("code", {}, codeText.replace(/^ (.*) $/s, "$1"));
  if (bare !== undefined) return link(bare, [bare]) ?? whole;
  if (depth > 8) return whole;
  if (target !== undefined) return link(target, label ? inline(label, depth + 1) : [target]) ?? whole;
  const strong = strong1 ?? strong2;
  if (strong !== undefined) return el("strong", {}, ...inline(strong, depth + 1));
  if (strike !== undefined) return el("s", {}, ...inline(strike, depth + 1));
  return el("em", {}, ...inline(em1 ?? em2, depth + 1));
}

function link(target, children) {
  let url;
  try {
    url = new URL(target, "about:blank");
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, ...children);
}

/** Text that grows: only blocks that have changed are made anew. */
export class GrowingMarkdown {
  constructor() {
    this.node = el("div", { class: "markdown" });
    this.text = "";
    this._sources = [];
    this._frame = 0;
  }

  add(text) {
    this.text += text;
    this._schedule();
  }

  set(text) {
    this.text = text;
    this.flush();
  }

  _schedule() {
    if (this._frame) return;
    if (document.hidden) this.flush();
    else this._frame = requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    const sources = blocks(this.text);
    let same = 0;
    while (same < sources.length && sources[same] === this._sources[same]) same += 1;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    const headings = this.node.querySelectorAll(":scope > :is(h2, h3, h4, h5, h6)");
    let above = headings.length ? Number(headings[headings.length - 1].tagName[1]) : 1;
    for (const source of sources.slice(same)) {
      const block = renderBlock(source, above);
      if (/^H[2-6]$/.test(block.tagName)) above = Number(block.tagName[1]);
      this.node.append(block);
    }
    this._sources = sources;
  }
}
