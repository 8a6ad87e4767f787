/**
 * What every page does: the stream, sign out, keys, a bypass in force, and parts that renew themselves.
 *
 * A part (`data-part`) renews itself by asking for its own page again. The browser parses the answer as a document
 * without scripts; so the server's templates stay the only place that writes HTML.
 */
import { $, $$, ask, complain, h } from "./dom.js";
import { connect, now, on, sessions, signOut } from "./live.js";
import { clock, count, nameOf, oneLine } from "./present.js";

export function startPage(topics = []) {
  $("#sign-out")?.addEventListener("click", signOut);
  on("change", bypass);
  connect(topics);
}

/** A bypass in force, above everything: nobody is asked meanwhile. */
function bypass() {
  const bare = [...sessions.values()].filter((session) => session.bypass_until > now());
  const place = $("#bypass");
  if (!place) return;
  place.hidden = !bare.length;
  if (!bare.length) return;
  const lines = bare.map((session) => {
    const by = session.bypass?.by ? ` by ${oneLine(session.bypass.by)}` : "";
    const through = session.bypass ? `, ${count(session.bypass.let_through)} let through` : "";
    return h("li", {}, `${oneLine(nameOf(session))}${by}, ends in ${clock(session.bypass_until - now())}${through}`);
  });
  $("ul", place).replaceChildren(...lines);
  $("button", place).onclick = () => Promise.all(bare.map((session) => ask("PATCH", `/v1/sessions/${session.id}`, { bypass_until: null })))
    .catch((error) => complain(place, "end the bypass", error));
}

function load(url) {
  return new Promise((loaded, failed) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.onload = () => (request.status === 200 && request.response ? loaded(request.response) : failed(new Error(request.status)));
    request.onerror = failed;
    request.send();
  });
}

let turn = Promise.resolve();

/** Asks for this page again, and replaces the parts that differ, one time after the other. Focus and marks stay. */
export function renew(url = location.href) {
  turn = turn.then(() => load(url)).then(replaceParts).catch(() => null);
  return turn;
}

function replaceParts(fresh) {
  for (const old of $$("[data-part]")) {
    const part = $(`[data-part="${old.dataset.part}"]`, fresh);
    if (!part || part.outerHTML === old.dataset.seen || (!old.dataset.seen && part.outerHTML === old.outerHTML)) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const checked = new Set($$("input:checked", old).map((box) => box.id));
    const open = new Set($$("details[open]", old).map((each) => each.id));
    const made = document.importNode(part, true);
    for (const box of $$("input[type=checkbox]", made)) box.checked = checked.has(box.id);
    for (const each of $$("details", made)) each.open = open.has(each.id);
    const seen = part.outerHTML;
    old.replaceWith(made);
    made.dataset.seen = seen;
    if (focused?.id) document.getElementById(focused.id)?.focus();
    made.dispatchEvent(new CustomEvent("renewed", { bubbles: true }));
  }
}

let soon = 0;
export function renewSoon(wait = 700) {
  soon ||= setTimeout(() => {
    soon = 0;
    renew();
  }, wait);
}

/** Says in one line what came of an act. */
export function result(text) {
  const place = $("#result");
  place.textContent = text;
  place.hidden = false;
}
