"use strict";
// The page is readable without this. It filters, sorts and pages the rows, and opens a run or a
// comparison in the panel. Texts of traces are only ever set as text, never as markup.
(() => {
  const PAGE = 200;
  document.documentElement.classList.add("js");
  document.addEventListener("DOMContentLoaded", start);

  const byId = (id) => document.getElementById(id);
  const all = (selector, at) => Array.from((at || document).querySelectorAll(selector));

  function element(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined && text !== null) made.textContent = text;
    return made;
  }

  function readJson(id) {
    const found = byId(id);
    return found ? JSON.parse(found.textContent) : null;
  }

  const state = { filter: "all", evaluator: "", words: [], sort: null, down: false, most: PAGE };
  let rows = [];
  let found = [];
  let rowOf = null;
  let current = null;
  let opener = null;

  function start() {
    rows = all("#rows > tr");
    byId("search").addEventListener("input", later(onSearch));
    all("[data-filter]").forEach((button) => button.addEventListener("click", onFilter));
    all("th[data-sort]").forEach(makeSortable);
    byId("first").addEventListener("change", () => { state.sort = null; showAgain(); });
    byId("more").addEventListener("click", () => { state.most += PAGE; show(); });
    if (byId("evaluator")) byId("evaluator").addEventListener("change", onEvaluator);
    byId("theme").addEventListener("click", onTheme);
    byId("close").addEventListener("click", closePanel);
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    byId("panel").addEventListener("close", onClosed);
    byId("panel").addEventListener("click", (event) => {
      if (event.target === byId("panel")) closePanel();
    });
    byId("panel").addEventListener("keydown", onPanelKey);
    document.addEventListener("click", onLink);
    document.addEventListener("keydown", onKey);
    window.addEventListener("hashchange", openFromHash);
    showAgain();
    openFromHash();
  }

  function later(call) {
    let timer = 0;
    return (event) => { clearTimeout(timer); timer = setTimeout(() => call(event), 120); };
  }

  // The rows.

  function onSearch(event) {
    state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    showAgain();
  }

  function onFilter(event) {
    state.filter = event.currentTarget.dataset.filter;
    all("[data-filter]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
    });
    showAgain();
  }

  function onEvaluator(event) {
    state.evaluator = event.target.value;
    all(".matrix [data-e]").forEach((cell) => {
      cell.hidden = state.evaluator !== "" && cell.dataset.e !== state.evaluator;
    });
    showAgain();
  }

  function makeSortable(head) {
    const button = element("button", "sort", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const again = state.sort === head;
      state.down = again ? !state.down : head.dataset.sort !== "label";
      state.sort = head;
      all("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      showAgain();
    });
  }

  function cellsOf(row) {
    const cells = all("td.cell", row);
    return state.evaluator === "" ? cells : cells.filter((c) => c.dataset.e === state.evaluator);
  }

  const has = (row, names) =>
    cellsOf(row).some((cell) => names.some((name) => cell.classList.contains(name)));

  const failures = (row) => Number(row.cells[row.cells.length - 2].dataset.v);

  function kept(row) {
    const chosen = state.evaluator !== "";
    switch (state.filter) {
      case "changed":
        return chosen ? has(row, ["regressed", "improved", "changed"])
          : !["", "same"].includes(row.dataset.c);
      case "regressed": return has(row, ["regressed"]);
      case "improved": return has(row, ["improved"]);
      case "bad":
        return chosen ? has(row, ["fail", "mixed", "error", "none"]) : row.dataset.b !== "0";
      case "error": return has(row, ["error"]);
      case "none": return has(row, ["none"]);
      case "failures": return failures(row) > 0;
      default: return true;
    }
  }

  function matches(row) {
    if (!state.words.length) return true;
    if (row.text === undefined) {
      row.text = (row.querySelector("th").textContent + " " + row.dataset.w).toLowerCase();
    }
    return state.words.every((word) => row.text.includes(word));
  }

  function keyOf(row) {
    const name = state.sort.dataset.sort;
    if (name === "label") return row.querySelector("th").textContent.toLowerCase();
    const number = ["time", "tokens", "failed calls", "gaps"].indexOf(name);
    const cell = number >= 0 ? row.cells[row.cells.length - 4 + number]
      : row.querySelectorAll("td.cell")[Number(name)];
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  }

  function rankOf(row) {
    if (has(row, ["regressed"])) return 0;
    if (has(row, ["changed"])) return 1;
    if (has(row, ["improved"])) return 2;
    if (has(row, ["fail", "mixed", "error"])) return 3;
    return has(row, ["none"]) ? 4 : 5;
  }

  function sorted(chosen) {
    if (state.sort) {
      const sign = state.down ? -1 : 1;
      const keyed = chosen.map((row, at) => [keyOf(row), at, row]);
      keyed.sort((a, b) => {
        if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null) || a[1] - b[1];
        return a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1];
      });
      return keyed.map((key) => key[2]);
    }
    if (byId("first").checked) {
      if (state.evaluator === "") return chosen; // the file's own order
      const ranked = chosen.map((row, at) => [rankOf(row), at, row]);
      return ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((key) => key[2]);
    }
    const named = chosen.map((row, at) => [row.querySelector("th").textContent, at, row]);
    named.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    return named.map((key) => key[2]);
  }

  function showAgain() {
    state.most = PAGE;
    if (!state.sort) all("th[aria-sort]").forEach((head) => head.removeAttribute("aria-sort"));
    found = sorted(rows.filter((row) => kept(row) && matches(row)));
    show();
  }

  function show() {
    all("#rows > tr.on").forEach((row) => row.classList.remove("on"));
    const shown = found.slice(0, state.most);
    shown.forEach((row) => row.classList.add("on"));
    byId("rows").prepend(...shown);
    const total = found.length.toLocaleString("en");
    byId("shown").textContent = found.length === 0 ? "No row matches."
      : found.length > shown.length ? `Showing ${shown.length} of ${total}.`
      : `${total} ${found.length === 1 ? "row" : "rows"}.`;
    byId("more").hidden = found.length <= shown.length;
  }

  // The panel.

  function onLink(event) {
    const link = event.target.closest('a[href^="#run-"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    opener = link;
    const run = link.getAttribute("href").slice(5);
    const compare = link.hasAttribute("data-compare") || link.matches(".compared th.case a");
    open(run, compare);
  }

  function openFromHash() {
    const match = /^#run-(.+)$/.exec(location.hash);
    if (match) open(decodeURIComponent(match[1]), false);
    else if (byId("panel").open) byId("panel").close();
  }

  function onKey(event) {
    const typing = event.target.closest && event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !byId("panel").open) {
      event.preventDefault();
      byId("search").focus();
    }
  }

  function onPanelKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
    if (event.target.getAttribute("role") !== "tab") return;
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const tabs = all("#panel-tabs button");
    const next = tabs[(tabs.indexOf(event.target) + move + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }

  function onTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  function closePanel() {
    byId("panel").close();
  }

  function onClosed() {
    current = null;
    if (location.hash.startsWith("#run-")) {
      history.replaceState(null, "", location.pathname + location.search);
    }
    if (opener && opener.isConnected) opener.focus();
  }

  function rowWith(run) {
    if (!rowOf) {
      rowOf = new Map();
      rows.forEach((row) => row.dataset.r.split(" ").forEach((name) => rowOf.set(name, row)));
    }
    return rowOf.get(run);
  }

  function step(by) {
    if (!current) return;
    const at = found.indexOf(current.row);
    const next = found[at + by];
    if (at < 0 || !next) return;
    open(next.dataset.r.split(" ")[0], current.compare);
  }

  function open(run, compare) {
    const row = rowWith(run);
    const runs = row ? row.dataset.r.split(" ") : [run];
    const diffs = readJson(`diff-${runs[0]}`) || [];
    const chosen = compare && diffs.length ? diffs[0] : null;
    current = { row, compare };
    fillTabs(runs, diffs, chosen || run);
    fill(chosen, run);
    const at = found.indexOf(row);
    byId("previous").disabled = at <= 0;
    byId("next").disabled = at < 0 || at >= found.length - 1;
    if (!byId("panel").open) byId("panel").showModal();
    byId("panel-body").scrollTop = 0;
  }

  function fillTabs(runs, diffs, chosen) {
    const tabs = diffs.map((diff) => tab(`⇄ compare with ${diff.group}`, diff === chosen, () => fill(diff)));
    if (runs.length > 1) {
      const seen = new Map();
      runs.slice(0, 60).forEach((name) => {
        const data = readJson(`data-${name}`);
        const group = data && data.group ? data.group : "run";
        const number = (seen.get(group) || 0) + 1;
        seen.set(group, number);
        const several = number > 1 ? ` #${number}` : "";
        tabs.push(tab(group + several, name === chosen, () => fill(null, name)));
      });
    }
    byId("panel-tabs").replaceChildren(...tabs);
    byId("panel-tabs").hidden = tabs.length < 2;
  }

  function tab(text, isChosen, onChosen) {
    const button = element("button", "tab", text);
    button.type = "button";
    button.setAttribute("role", "tab");
    button.setAttribute("aria-selected", String(isChosen));
    button.addEventListener("click", () => {
      all("#panel-tabs button").forEach((other) => {
        other.setAttribute("aria-selected", String(other === button));
      });
      onChosen();
      byId("panel-body").scrollTop = 0;
    });
    return button;
  }

  function fill(diff, run) {
    const body = byId("panel-body");
    byId("panel").classList.toggle("wide", Boolean(diff));
    const name = diff ? diff.right : run;
    const data = readJson(`data-${name}`);
    if (!diff) history.replaceState(null, "", `#run-${encodeURIComponent(run)}`);
    byId("panel-id").textContent = diff ? `${diff.left} ⇄ ${diff.right}` : name;
    if (!data) {
      byId("panel-title").textContent = "Not in this file";
      body.replaceChildren(element("p", "note",
        `The details of this run were left out of the file. oteval show ${name} shows them.`));
      return;
    }
    byId("panel-title").textContent = data.title || name;
    body.replaceChildren(...(diff ? compared(diff, data) : told(data)));
  }

  // A run.

  function told(data) {
    const parts = [facts(data.facts)];
    if (data.error) parts.push(element("p", "failure", `The run failed: ${data.error}`));
    if (data.scores.length) parts.push(scores(data.scores));
    if (data.inputs !== undefined) parts.push(folded("Inputs", data.inputs, !data.messages.length));
    if (data.outputs !== undefined) parts.push(folded("Outputs", data.outputs, !data.messages.length));
    if (data.earlier) parts.push(earlier(data));
    const rewrites = new Map((data.rewrites || []).map((one) => [one[0], one[1]]));
    data.messages.forEach((one) => {
      if (rewrites.has(one.at)) {
        parts.push(element("p", "earlier",
          `The history was rewritten here: ${rewrites.get(one.at)} messages were replaced.`));
      }
      parts.push(message(one));
    });
    if (!data.messages.length && data.inputs === undefined) {
      parts.push(element("p", "note", "The trace holds no messages of this run."));
    }
    if (data.gaps && data.gaps.length) parts.push(gaps(data.gaps));
    if (data.steps && data.steps.some((one) => one.length)) parts.push(steps(data.steps));
    return parts;
  }

  function facts(pairs) {
    const list = element("dl", "facts");
    pairs.forEach(([name, value]) => {
      const one = element("div");
      one.append(element("dt", "", name), element("dd", "", value));
      list.append(one);
    });
    return list;
  }

  const WORDS = { pass: "pass", fail: "fail", error: "error", none: "not evaluated", score: "score" };

  function scores(given) {
    const list = element("ul", "scores");
    given.forEach((one) => {
      const line = element("li");
      const number = one.score !== undefined && !["0", "1"].includes(one.score) ? ` ${one.score}` : "";
      line.append(element("span", `state ${one.state}`, (one.label || WORDS[one.state]) + number),
        element("b", "", one.evaluator));
      if (one.comment) line.append(element("span", "comment", one.comment));
      if (one.metadata) line.append(folded("figures", one.metadata, false));
      list.append(line);
    });
    return list;
  }

  function folded(title, text, isOpen) {
    const made = element("details", "folded");
    made.open = isOpen;
    made.append(element("summary", "", title), element("pre", "", text));
    return made;
  }

  function earlier(data) {
    const line = element("p", "earlier", `${data.earlier} earlier messages are the turns before. `);
    if (data.before && byId(`data-${data.before}`)) {
      const link = element("a", "", "Open the turn before");
      link.href = `#run-${data.before}`;
      line.append(link);
    }
    return line;
  }

  const ROLES = ["system", "developer", "user", "assistant", "tool"];

  function message(one) {
    const role = ROLES.includes(one.role) ? one.role : "other";
    const made = element("div", `message ${role}${one.failed ? " failed" : ""}`);
    const who = element("div", "who");
    who.append(element("span", "at", one.at), element("span", "", one.role));
    if (one.name) who.append(element("span", "name", one.name));
    if (one.answers) who.append(element("span", "took", one.answers));
    if (one.failed) who.append(element("span", "chip regressed", "failed"));
    made.append(who);
    if (one.text !== undefined) made.append(said(one.text));
    if (one.missing) made.append(element("div", "said missing", "content not captured"));
    (one.calls || []).forEach((call) => made.append(called(call)));
    (one.parts || []).forEach((part) => made.append(shownPart(part)));
    return made;
  }

  // A long text opens at its beginning.
  function said(text) {
    if (text.length < 1600) return element("div", "said", text);
    const made = element("div", "said");
    const rest = element("button", "ghost", `Show all ${text.length.toLocaleString("en")} characters`);
    rest.type = "button";
    const body = element("span", "", `${text.slice(0, 1200)} … `);
    rest.addEventListener("click", () => { body.textContent = text; rest.remove(); });
    made.append(body, rest);
    return made;
  }

  function called(call) {
    const made = element("div", "call");
    made.append(element("span", "fn", call.name));
    if (call.took) made.append(element("span", "took", call.took));
    if (call.parallel) made.append(element("span", "took", "in parallel"));
    if (call.id) made.append(element("span", "took", call.id));
    made.append(element("pre", "", call.missing ? "arguments not captured" : call.arguments));
    return made;
  }

  function shownPart(part) {
    const made = element("div", "part");
    made.append(element("span", "kind", part.kind));
    if (part.image) {
      const image = element("img");
      image.alt = "image from the trace";
      image.src = part.image;
      made.append(image);
    } else {
      made.append(element("pre", "", part.text));
    }
    return made;
  }

  function gaps(given) {
    const made = element("section", "section");
    const list = element("ul", "gaps");
    given.forEach((gap) => {
      const line = element("li");
      line.append(element("b", "", gap.code), element("span", "", gap.detail),
        element("small", "", gap.where));
      list.append(line);
    });
    made.append(element("h3", "", "What the trace does not hold"), list);
    return made;
  }

  function steps(given) {
    const made = element("section", "section");
    made.append(element("h3", "", "Steps"));
    given.forEach((turn) => {
      const line = element("ol", "steps");
      turn.forEach((name) => line.append(element("li", "", name)));
      made.append(line);
    });
    return made;
  }

  // Two runs side by side.

  function compared(diff, right) {
    const left = readJson(`data-${diff.left}`);
    if (!left) return told(right);
    const differing = diff.pairs.filter((pair) => !pair[2]).length;
    const head = element("div", "pair heads");
    head.append(side(left, "baseline"), side(right, ""));
    const parts = [head];
    const nowhere = differing
      ? "The messages are the same; the system messages differ."
      : `No difference in ${diff.pairs.length} ${diff.pairs.length === 1 ? "message" : "messages"}.`;
    parts.push(element("p", "divergence", diff.first === null
      ? nowhere
      : `First divergence at row ${diff.first + 1} of ${diff.pairs.length}; ${differing} differ.`));
    let same = [];
    const flush = () => {
      if (same.length > 2) parts.push(foldedPairs(same, left, right));
      else same.forEach((pair) => parts.push(pairOf(pair, left, right, false)));
      same = [];
    };
    diff.pairs.forEach((pair, at) => {
      if (pair[2]) { same.push(pair); return; }
      flush();
      parts.push(pairOf(pair, left, right, at === diff.first));
    });
    flush();
    return parts;
  }

  function side(data, tag) {
    const made = element("div");
    const title = element("h3", "", data.group);
    if (tag) title.append(" ", element("span", "tag", tag));
    made.append(title);
    if (data.error) made.append(element("p", "failure", `The run failed: ${data.error}`));
    if (data.scores.length) made.append(scores(data.scores));
    return made;
  }

  function foldedPairs(pairs, left, right) {
    const made = element("details", "folded");
    made.append(element("summary", "", `${pairs.length} messages are the same on both sides`));
    made.addEventListener("toggle", () => {
      if (made.open && made.childElementCount === 1) {
        pairs.forEach((pair) => made.append(pairOf(pair, left, right, false)));
      }
    });
    return made;
  }

  function pairOf(pair, left, right, isFirst) {
    const made = element("div", `pair ${pair[2] ? "same" : "differs"}${isFirst ? " first" : ""}`);
    if (isFirst) made.append(element("p", "first-mark", "▶ first divergence"));
    [[left, pair[0]], [right, pair[1]]].forEach(([data, at]) => {
      const one = at === null ? null : data.messages[at];
      made.append(one ? message(one) : element("div", "nothing", "no such message"));
    });
    return made;
  }
})();
