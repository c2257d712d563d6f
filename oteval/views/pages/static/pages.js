// Keys, completion in the search field, and runs that arrive. Everything can be read without it.
"use strict";
document.documentElement.classList.add("js");

const field = document.querySelector("#q");
const isTyping = (event) => event.target.closest("input, textarea, select") !== null;

function rows() {
  return [...document.querySelectorAll("#runs .to")];
}

function move(step) {
  const links = rows();
  const at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))];
  if (next) {
    next.focus();
    next.closest("li").scrollIntoView({ block: "nearest" });
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  if (event.key === "/" && field) {
    event.preventDefault();
    field.focus();
    field.select();
    return;
  }
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});

// Completion of the last word in the search field.
const words = document.querySelector("#words");
if (field && words) {
  const known = field.dataset.words.split(" ");
  let chosen = -1;
  const last = () => field.value.split(/\s+/).pop();
  const show = () => {
    const begun = last();
    const found = known.filter((word) => word.startsWith(begun) && word !== begun).slice(0, 8);
    chosen = -1;
    words.replaceChildren(...found.map((word) => {
      const item = document.createElement("li");
      item.textContent = word;
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(word); });
      return item;
    }));
    words.hidden = found.length === 0 || document.activeElement !== field;
  };
  const take = (word) => {
    field.value = field.value.slice(0, field.value.length - last().length) + word;
    show();
  };
  field.addEventListener("input", show);
  field.addEventListener("focus", show);
  field.addEventListener("blur", () => { words.hidden = true; });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { words.hidden = true; field.blur(); return; }
    if (words.hidden) return;
    const items = [...words.children];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : items.length)) % items.length;
      items.forEach((item, at) => item.classList.toggle("on", at === chosen));
    } else if ((event.key === "Tab" || event.key === "Enter") && chosen >= 0) {
      event.preventDefault();
      take(items[chosen].textContent);
    }
  });
} else if (field) {
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") field.blur(); });
}

// Runs and scores that arrive: the list is asked for again, and new runs are marked.
const list = document.querySelector("#runs");
const seen = document.body.dataset.live;
if (list && seen && window.EventSource) {
  const source = new EventSource(`/events?state=${encodeURIComponent(seen)}`);
  let isLoading = false;
  let isStale = false;
  const load = async () => {
    isStale = isLoading;
    if (isLoading) return;
    isLoading = true;
    try {
      const address = new URL(location.href);
      address.searchParams.set("rows", "1");
      const answer = await fetch(address);
      if (!answer.ok) return;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const known = new Set([...list.querySelectorAll(".item")].map((item) => item.dataset.id));
      const focused = document.activeElement.closest?.("#runs .item")?.dataset.id;
      const items = [...parsed.querySelectorAll(".item")];
      items.forEach((item) => item.classList.toggle("new", !known.has(item.dataset.id)));
      list.replaceChildren(...list.querySelectorAll(".labels"), ...items);
      list.hidden = !items.length;
      if (items.length) document.querySelector("#no-runs")?.remove();
      const count = parsed.querySelector("#count");
      if (count && document.querySelector("#count")) {
        document.querySelector("#count").textContent = count.textContent;
      }
      if (focused) {
        list.querySelector(`[data-id="${CSS.escape(focused)}"] .to`)?.focus({ preventScroll: true });
      }
    } finally {
      isLoading = false;
      // Something changed while the list was on its way.
      if (isStale) load();
    }
  };
  source.addEventListener("message", load);
  window.addEventListener("pagehide", () => source.close());
}

// The message of an action is of this visit; a reload or a link to the page has no part in it.
if (document.querySelector("#done")) {
  const address = new URL(location.href);
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}

// A run that just ended: its page gives way to that of the stored run.
const ended = document.body.dataset.preview;
if (ended && window.EventSource) {
  const source = new EventSource(`/events?state=${encodeURIComponent(ended)}`);
  let text = "";
  source.addEventListener("message", async () => {
    const answer = await fetch(location.href);
    if (answer.redirected) location.replace(answer.url);
    else if (answer.ok) {
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const talk = parsed.querySelector(".talk");
      if (talk && talk.outerHTML !== text) document.querySelector(".talk")?.replaceWith(talk);
      text = talk ? talk.outerHTML : "";
    }
  });
  window.addEventListener("pagehide", () => source.close());
}
