"use strict";
// Keeps the pieces of a page current, and adds keys. Every page is complete without this file.
const state = document.getElementById("stream-state");
const address = document.body.dataset.stream;
let source = null;

function show(text) {
  state.textContent = text;
  state.dataset.state = text;
}

function morph(html) {
  const piece = document.createElement("template");
  piece.innerHTML = html;
  for (const fresh of [...piece.content.children]) {
    const old = document.getElementById(fresh.id);
    if (old) Idiomorph.morph(old, fresh, {
      ignoreActiveValue: true,
      callbacks: {
        // What a visitor typed or opened stays.
        beforeNodeMorphed: (node) => !(node.matches?.("textarea, input:not([type=hidden])") && node.value !== node.defaultValue),
        beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
      },
    });
  }
}

function listen() {
  source = new EventSource(address);
  source.onopen = () => show("live");
  source.onerror = () => show("reconnecting");
  source.addEventListener("piece", (event) => morph(event.data));
}

// The same text as the server writes: the two largest units of an age, a plus sign before a time to come.
const units = [["y", 31536000], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function age(at) {
  const seconds = Math.round((Date.now() - at) / 1000);
  let left = Math.abs(seconds);
  for (const [index, [unit, size]] of units.entries()) {
    const count = Math.floor(left / size);
    if (!count && size > 1) continue;
    const [smaller, smallerSize] = units[index + 1] ?? ["", 1];
    const rest = Math.floor((left - count * size) / smallerSize);
    return (seconds < 0 ? "+" : "") + count + unit + (count < 2 && rest && smaller ? rest + smaller : "");
  }
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = age(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}, 5000);

if (address) {
  listen();
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (document.hidden) show("paused"); else listen();
  });
}

let going = false;

function move(step) {
  const rows = [...document.querySelectorAll("a.row")];
  const now = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, now + step))]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (going) {
    going = false;
    document.querySelector(`header a[data-go="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  if (event.key === "g") going = true;
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "/") {
    const search = document.querySelector("[data-key=search]");
    if (search) search.focus(); else document.querySelector('header a[data-go="s"]').click();
    event.preventDefault();
  }
});

document.getElementById("theme").addEventListener("change", (event) => {
  const theme = event.target.value;
  document.documentElement.dataset.theme = theme;
  document.cookie = `lash_theme=${theme};path=/;samesite=strict;max-age=31536000`;
});
