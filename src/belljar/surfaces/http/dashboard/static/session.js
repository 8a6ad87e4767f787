/** A session's page: its cards, pause and stop, and one of its views. */
import { $, $$, ask, complain, h, setAttribute, setText } from "./dom.js";
import { cardKeys, cardOf, openCards, startCards, stepBack } from "./cards.js";
import { stop, togglePause } from "./dialogs.js";
import { startChanges } from "./changes.js";
import { startKeys, step } from "./keys.js";
import { isLive, now, on, sessions } from "./live.js";
import { LINES, Log, Search } from "./log.js";
import { renewSoon, startPage } from "./page.js";
import { clock, MARKS, number, status } from "./present.js";

const main = $("#main");
const id = main.dataset.session;
const command = main.dataset.command;
const view = main.dataset.view;
const session = () => sessions.get(id);

const changes = view === "changes" ? startChanges(id) : {};
const log = view === "commands" && $("#log") ? startLog($("#log")) : null;

function startLog(box) {
  const follow = $("#follow");
  const path = `/sessions/${id}/commands/${command}`;
  const made = new Log(box, {
    link: (at) => `${path}?at=${at}`, first: Number(box.dataset.first), next: Number(box.dataset.next),
    following: () => follow.getAttribute("aria-pressed") === "true",
  });
  made.trimmed = (earlier) => {
    $("#earlier").hidden = false;
    setText($("#earlier"), `${number(earlier)} earlier lines`);
  };
  follow.addEventListener("click", () => {
    const on = follow.getAttribute("aria-pressed") !== "true";
    setAttribute(follow, "aria-pressed", on);
    if (on && box.dataset.at) return location.assign(path);
    if (on) box.scrollTop = box.scrollHeight;
  });
  new Search($("#search"), box, $("#found"));
  const here = $("[aria-current=location]", box);
  if (here) here.scrollIntoView({ block: "center" });
  else box.scrollTop = box.scrollHeight;
  return made;
}

function draw() {
  const each = session();
  if (!each) return;
  const word = status(each);
  setText($(".facts [data-f=state]"), `${MARKS[word]} ${word === "starting" ? `${word} · ${each.state}` : word}`);
  setText($(".facts [data-f=left]"), each.state === "ended" ? "–" : clock(each.expires - now()));
  const paused = each.paused || each.state === "paused";
  setText($("#pause"), paused ? "Resume" : "Pause");
  for (const button of [$("#pause"), $("#stop")]) setAttribute(button, "aria-disabled", !isLive() || each.state === "ended" || button.dataset.barred === "1");
}

const alive = (button) => button.getAttribute("aria-disabled") !== "true";
$("#pause").addEventListener("click", () => alive($("#pause")) && togglePause(session(), $("#acts")));
$("#stop").addEventListener("click", () => alive($("#stop")) && stop(session(), $("#acts")));
setInterval(draw, 1000);
on("change", draw);
on("live", (live) => {
  draw();
  if (live) renewSoon();
});
// Whatever this page shows was made by the server: it asks again when something of this session has changed.
let seen = "";
on("change", () => {
  const facts = JSON.stringify([session()?.state, session()?.staged, session()?.current?.id, session()?.last]);
  if (seen && facts !== seen) renewSoon();
  seen = facts;
});
on("commands", (said) => (said.puts ?? []).some(([, item]) => item?.session === id) && renewSoon());
on("output", (pieces) => log?.box.dataset.at ? null : log?.add(pieces.flatMap((piece) => piece.items ?? [piece]).filter((piece) => !piece.command || piece.command === command)));
if (view === "audit" || view === "network" || view === "files") setInterval(() => isLive() && renewSoon(), 5000);

const onCard = (act) => (target) => cardOf(target) && act(cardOf(target));
const rows = () => [...openCards(), ...$$("tbody tr[tabindex]")];

startCards();
startKeys({
  j: () => step(rows(), 1),
  k: () => step(rows(), -1),
  w: () => openCards()[0]?.focus(),
  t: () => $("tbody tr[tabindex]")?.focus(),
  ...Object.fromEntries(Object.entries(cardKeys).map(([key, act]) => [key, onCard(act)])),
  x: () => stop(session(), $("#acts")),
  p: () => togglePause(session(), $("#acts")),
  l: () => $("#log")?.focus(),
  Enter: (target) => $("a", target.closest("tr") ?? document.createElement("i"))?.click(),
  "/": () => $("#search")?.focus(),
  ...changes,
  Escape: (target) => {
    const card = cardOf(target);
    if (card) return stepBack(card) || $("#waiting-h").focus();
    if (target.id === "search") target.blur();
  },
});
const wanted = ["commands"];
if (command && !$("#log")?.dataset.at) wanted.push(`output:${id}/${command}`);
startPage(wanted);
