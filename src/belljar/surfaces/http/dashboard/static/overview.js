/** The overview: who waits for me, what is on fire, what is each doing, how do I stop it. */
import { $, $$, ask, h, setText } from "./dom.js";
import { cardKeys, cardOf, openCards, startCards, stepBack } from "./cards.js";
import { stop, stopAll, togglePause } from "./dialogs.js";
import { allRows, idOf, rowOf, shownSessions, startGrid } from "./grid.js";
import { startKeys, step } from "./keys.js";
import { audit, follow, nameOfId, on, sessions } from "./live.js";
import { Log } from "./log.js";
import { startPage } from "./page.js";
import { commandText, eventText, eventWord, moment, nameOf, oneLine, time } from "./present.js";

const log = new Log($("#log"));
let chosen = new URLSearchParams(location.search).get("session");
let following = "";

function choose(id) {
  chosen = id;
  const url = new URL(location.href);
  url.searchParams.set("session", id);
  history.replaceState(null, "", url);
  for (const row of allRows()) row.classList.toggle("chosen", idOf(row) === id);
  following = "";
  log.clear();
  showOutput();
}

/** The output of the chosen session's current command, else of its last. */
async function showOutput() {
  if (!chosen) return;
  const session = sessions.get(chosen);
  setText($("#output-h"), `Output of ${oneLine(nameOf(session) || chosen)}`);
  $("#no-output").hidden = true;
  if (!session) return;
  document.getElementById(`session-${chosen}`)?.classList.add("chosen");
  const command = session.current ?? session.last ?? (await lastOf(chosen));
  if (!command || `${chosen}/${command.id}` === following) return;
  if (following) log.clear();
  following = `${chosen}/${command.id}`;
  setText($("#output-command"), oneLine(commandText(command.command)));
  follow(["audit", `output:${following}`]);
}

const asked = new Map();
async function lastOf(id) {
  if (!asked.has(id)) asked.set(id, ask("GET", `/v1/sessions/${id}/commands?limit=1`).then((found) => found.items[0]).catch(() => null));
  return asked.get(id);
}

on("output", (pieces) => log.add(pieces.flatMap((piece) => piece.items ?? [piece]).filter((piece) => following.endsWith(`/${piece.command}`) || !piece.command)));
on("change", (topics) => {
  if (topics.has("sessions")) showOutput();
  drawEvents();
});

function drawEvents() {
  const place = $("#events");
  const records = [...audit.values()].slice(-20).reverse();
  const known = new Map($$("li", place).map((item) => [item.dataset.seq, item]));
  const items = records.map((record) => known.get(String(record.seq)) ?? drawEvent(record));
  if (items.some((item, index) => place.children[index] !== item) || place.children.length !== items.length) place.replaceChildren(...items);
  for (const [index, record] of records.entries()) if (record.session) setText($("a", items[index]), oneLine(nameOfId(record.session)));
  $("#no-events").hidden = items.length > 0;
}

function drawEvent(record) {
  const session = record.session && h("a", { href: `/sessions/${encodeURIComponent(record.session)}` }, oneLine(nameOfId(record.session)));
  const parts = [h("time", {}, time(moment(record))), h("b", {}, eventWord(record)), session || h("i"), h("span", {}, eventText(record).slice(0, 200))];
  return h("li", { "data-seq": record.seq }, ...parts);
}

const subject = (target) => {
  const card = cardOf(target);
  const row = rowOf(target);
  return sessions.get(card ? card.item.session : idOf(row));
};

function leave(target, event) {
  const card = cardOf(target);
  if (card) return stepBack(card) || $("#waiting-h").focus();
  if (target.id === "filter" && target.value) {
    target.value = "";
    return target.dispatchEvent(new Event("input"));
  }
  if (target.id === "filter" || rowOf(target)) target.blur();
}

const onCard = (act) => (target) => cardOf(target) && act(cardOf(target));

startGrid(choose);
startCards();
startKeys({
  j: () => step([...openCards(), ...allRows()], 1),
  k: () => step([...openCards(), ...allRows()], -1),
  w: () => openCards()[0]?.focus(),
  t: () => allRows()[0]?.focus(),
  ...Object.fromEntries(Object.entries(cardKeys).map(([key, act]) => [key, onCard(act)])),
  x: (target) => stop(subject(target)),
  p: (target) => togglePause(subject(target)),
  l: (target) => subject(target) && choose(subject(target).id),
  Enter: (target) => subject(target) && location.assign(`/sessions/${encodeURIComponent(subject(target).id)}`),
  "/": () => $("#filter").focus(),
  Escape: leave,
});
$("#filter").addEventListener("keydown", (event) => event.key === "Enter" && allRows()[0]?.focus());
$("#stop-shown").addEventListener("click", () => stopAll(shownSessions()));
startPage(["audit"]);
