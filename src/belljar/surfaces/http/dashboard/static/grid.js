/**
 * The table of sessions: what each is doing, what needs a person first.
 *
 * Cells change at once. The order is made anew at most every five seconds, and never under a pointer or a focus.
 */
import { $, $$, copyOf, h, setAttribute, setText } from "./dom.js";
import { known, now, on, sessions, waiting } from "./live.js";
import { badges, clock, commandText, compare, doing, linesChanged, MARKS, nameOf, oneLine, outputText, rank, size, status } from "./present.js";

const REORDER = 5000;
const GONE = 60;
const SAMPLES = 60;
const SHOWS = { denied: "denied", failing: ["failing", "lost"], running: "running" };

const body = $("#rows");
const search = $("#filter");
const rows = new Map();
const history = new Map();
let most = 200;
let orderedAt = 0;
let order = [];
let pointerOver = false;
let show = new URLSearchParams(location.search).get("state") || "all";

export const rowOf = (element) => element?.closest?.("tr[id^=session-]");
export const idOf = (row) => row?.id.replace("session-", "");
export const allRows = () => $$("tr", body);
export const isFiltered = () => show !== "all" || search.value.trim() !== "";
export const shownSessions = () => matching().map((id) => sessions.get(id)).filter((each) => each.state !== "ended");

export function startGrid(choose) {
  for (const row of allRows()) {
    rows.set(idOf(row), { row });
    order.push(idOf(row));
  }
  body.addEventListener("pointermove", (event) => (pointerOver = event.pointerType === "mouse"));
  body.addEventListener("pointerleave", () => (pointerOver = false));
  body.addEventListener("click", (event) => !event.target.closest("a") && rowOf(event.target) && choose(idOf(rowOf(event.target))));
  body.addEventListener("focusin", (event) => rove(rowOf(event.target)));
  body.addEventListener("keydown", walk);
  search.addEventListener("input", () => filter(show));
  for (const button of $$("#show button"))
    button.addEventListener("click", () => filter(button.dataset.show === show ? "all" : button.dataset.show));
  $("#show-all").addEventListener("click", () => {
    search.value = "";
    filter("all");
  });
  $("#more-rows").addEventListener("click", () => {
    most += 100;
    render(true);
  });
  on("change", (topics) => topics.has("audit") && topics.size === 1 || render());
  setInterval(tick, 1000);
}

function filter(word) {
  show = word;
  const url = new URL(location.href);
  const set = (name, value) => (value ? url.searchParams.set(name, value) : url.searchParams.delete(name));
  set("state", show === "all" ? "" : show);
  set("q", search.value.trim());
  window.history.replaceState(null, "", url);
  render(true);
}

/** Living sessions, those that failed or were lost, and those that ended a minute ago at most. */
const present = (session) => status(session) !== "ended" || now() - (session.ended ?? 0) < GONE;

function finds(session) {
  const words = search.value.trim().toLowerCase();
  if (!words) return true;
  const text = [session.name, session.id, commandText(doing(session).command), session.policy, ...Object.values(session.metadata ?? {})].join(" ");
  return text.toLowerCase().includes(words);
}

function leaves(session, word) {
  if (word === "all") return true;
  if (word === "denied") return badges(session, now()).includes("denied");
  if (word === "waiting") return status(session) === "waiting";
  return SHOWS[word].includes(status(session));
}

const left = (word) => [...sessions.values()].filter((session) => present(session) && finds(session) && leaves(session, word));
const matching = () => order.filter((id) => sessions.has(id) && present(sessions.get(id)) && finds(sessions.get(id)) && leaves(sessions.get(id), show));

export function render(anew = false) {
  if (!known.has("sessions")) return;
  const held = pointerOver || body.contains(document.activeElement);
  for (const session of sessions.values()) sample(session);
  if (anew || (!held && Date.now() - orderedAt >= REORDER)) reorder();
  else order.push(...[...sessions.keys()].filter((id) => !rows.has(id) && !order.includes(id)));
  const ids = matching().slice(0, most);
  if (held && !anew) for (const row of allRows()) if (!ids.includes(idOf(row))) ids.splice(allRows().indexOf(row), 0, idOf(row));
  arrange(ids);
  for (const id of ids) if (sessions.has(id)) draw(id);
  counts();
}

function reorder() {
  orderedAt = Date.now();
  const at = now();
  order = [...sessions.values()].map((each) => rank(each, at)).sort(compare).map(([, , id]) => id);
  for (const id of rows.keys()) if (!sessions.has(id)) rows.delete(id);
}

function arrange(ids) {
  const wanted = ids.map((id) => rows.get(id)?.row ?? make(id));
  wanted.forEach((row, index) => body.children[index] !== row && body.insertBefore(row, body.children[index] ?? null));
  while (body.children.length > wanted.length) body.lastElementChild.remove();
  if (wanted.length && !$("tr[tabindex='0']", body)) wanted[0].tabIndex = 0;
}

function make(id) {
  const row = copyOf("row-template");
  row.id = `session-${id}`;
  rows.set(id, { row });
  return row;
}

function draw(id) {
  const session = sessions.get(id);
  const { row } = rows.get(id);
  const at = now();
  const word = status(session);
  const asked = word === "waiting" ? waiting().find((each) => each.session === id) : null;
  const does = doing(session, asked);
  const entry = rows.get(id);
  entry.since = word === "ended" ? null : does.since;
  entry.until = session.state === "ended" ? null : session.expires;
  const look = `state-${word}${row.classList.contains("chosen") ? " chosen" : ""}`;
  if (row.className !== look) row.className = look;
  setText($("[data-f=mark]", row), MARKS[word]);
  setText($("[data-f=word]", row), word === "starting" ? `${word} · ${session.state}` : word);
  drawBadges($("[data-f=badges]", row), badges(session, at));
  const link = $("[data-f=name]", row);
  setText(link, oneLine(nameOf(session)));
  setAttribute(link, "href", `/sessions/${encodeURIComponent(id)}`);
  const command = $("[data-f=command]", row);
  setText(command, oneLine(commandText(does.command)));
  command.classList.toggle("dim", does.dim);
  setText($("[data-f=line]", row), outputText(session.last_line ?? "").slice(0, 200));
  drawUse(row, id, session);
  setText($("[data-f=changes]", row), linesChanged(session.staged));
  times(id, at);
}

function drawBadges(place, words) {
  if (place.textContent !== words.join("")) place.replaceChildren(...words.map((word) => h("span", { class: `badge ${word.replace(" ", "-")}` }, word)));
}

function sample(session) {
  if (!session.usage) return;
  const seen = history.get(session.id) ?? [];
  if (seen.at(-1)?.at === session.usage.at) return;
  seen.push({ at: session.usage.at, cpu: session.usage.cpu });
  if (seen.length > SAMPLES) seen.shift();
  history.set(session.id, seen);
}

function drawUse(row, id, session) {
  const use = session.usage;
  const chart = $("svg", row);
  chart.classList.toggle("none", !use);
  setText($("[data-f=memory]", row), use ? size(use.memory) : "");
  if (!use) return;
  setAttribute(chart, "aria-label", `CPU ${Math.round(use.cpu * 100)} %`);
  const seen = history.get(id) ?? [];
  const points = seen.map(({ cpu }, index) => `${60 - seen.length + index},${(14 - Math.min(1, cpu) * 12).toFixed(1)}`);
  setAttribute($("polyline", chart), "points", points.length > 1 ? points.join(" ") : `58,${points[0].split(",")[1]} ${points[0]}`);
  setText($("[data-f=cpu]", row), `${Math.round(use.cpu * 100)}`);
}

function times(id, at) {
  const { row, since, until } = rows.get(id);
  setText($("[data-f=since]", row), since ? clock(at - since) : "");
  setText($("[data-f=left]", row), until ? clock(until - at) : "");
}

function tick() {
  if (!known.has("sessions")) return;
  const at = now();
  for (const row of allRows()) if (rows.has(idOf(row))) times(idOf(row), at);
  if (order.length !== sessions.size || allRows().some((row) => sessions.get(idOf(row))?.state === "ended")) render();
  else counts();
  const oldest = Math.min(...waiting().map((each) => each.created));
  setText($("#oldest"), Number.isFinite(oldest) ? `oldest waits ${clock(at - oldest)}` : "");
}

function counts() {
  for (const button of $$("#show button")) {
    const word = button.dataset.show;
    setText($("b", button), String(word === "waiting" ? waiting().length : left(word).length));
    setAttribute(button, "aria-pressed", word === show);
  }
  const rows = allRows().length;
  const total = matching().length;
  $("#show-all").hidden = $("#no-match").hidden = total > 0 || !isFiltered();
  $("#no-sessions").hidden = rows > 0 || isFiltered();
  $("#more-rows").hidden = total <= rows;
  setText($("#more-rows"), "Show 100 more");
  $("#stop-shown").hidden = !isFiltered() || total === 0;
}

/** One row is in the tab order; the arrow keys walk. */
function rove(row) {
  if (!row || row.tabIndex === 0) return;
  for (const each of allRows()) each.tabIndex = each === row ? 0 : -1;
}

function walk(event) {
  const row = rowOf(event.target);
  const all = allRows();
  const to = { ArrowDown: all.indexOf(row) + 1, ArrowUp: all.indexOf(row) - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  all[Math.max(0, Math.min(to, all.length - 1))]?.focus();
}
