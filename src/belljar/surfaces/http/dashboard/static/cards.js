/**
 * The approval cards: what an agent asks, and the four answers.
 *
 * A card that has just moved takes no press (the guard): a hand that was on its way would answer another question.
 * While the pointer or the focus is in the list nothing moves at all: new cards go below, decided ones stay.
 */
import { $, $$, ask, complain, copyOf, h, setAttribute, setText } from "./dom.js";
import { approvals, isLive, known, may, nameOfId, now, on } from "./live.js";
import { clock, compare, marked, number, oneLine, outcome, plainReason, RISKS, shown } from "./present.js";

const GUARD = 500;
const LAPSE = 10_000;
const STAYS = 5_000;
const MOST_EFFECTS = 5;
const MOST_LINES = 12;
const BOLD = 60;
let most = 50;

const list = $("#cards");
const only = list?.dataset.session;
const cards = new Map();
let pointerOver = false;

const order = (item) => [RISKS.indexOf(item.risk), item.created, item.id];
const inOrder = (items) => items.sort((a, b) => compare(order(a), order(b)));
const held = () => pointerOver || list.contains(document.activeElement);
const titleOf = (item) => `${item.risk[0].toUpperCase()}${item.risk.slice(1)} · ${shown(nameOfId(item.session))}`;
export const cardOf = (element) => cards.get(element?.closest?.("article.card")?.id.replace("approval-", ""));
export const openCards = () => $$("article.card", list).filter((each) => cardOf(each)?.state !== "decided");

export function startCards() {
  if (!list) return;
  for (const element of $$("article.card", list)) adopt(element);
  list.addEventListener("pointermove", (event) => (pointerOver = event.pointerType === "mouse"));
  list.addEventListener("pointerleave", () => settleSoon((pointerOver = false)));
  list.addEventListener("focusout", () => settleSoon());
  on("change", (topics) => (topics.has("approvals") ? render() : cards.forEach((card) => card.token && name(card))));
  on("live", refresh);
  setInterval(tick, 1000);
}

const settleSoon = () => setTimeout(render, 0);

/** Cards of the first HTML become live without being made again. */
function adopt(element) {
  const id = element.id.replace("approval-", "");
  const card = { element, item: { id, risk: element.dataset.risk, created: Number(element.dataset.created), state: "waiting" }, state: "open" };
  cards.set(id, card);
  wire(card);
}

function make(item) {
  const element = copyOf("card-template");
  element.id = `approval-${item.id}`;
  const card = { element, item, state: "open" };
  wire(card);
  draw(card);
  cards.set(item.id, card);
  return card;
}

function wire(card) {
  const press = { once: () => allow(card, "once"), session: () => allow(card, "session"), deny: () => deny(card), explain: () => explain(card) };
  for (const button of $$(".buttons button", card.element))
    button.addEventListener("click", () => button.getAttribute("aria-disabled") !== "true" && press[button.dataset.act]());
}

function draw(card) {
  const { element, item } = card;
  card.token = item.token;
  element.className = `card risk-${item.risk}`;
  const heading = $("h3", element);
  heading.id = `${element.id}-h`;
  element.setAttribute("aria-labelledby", heading.id);
  name(card);
  setText($("[data-f=what]", element), item.about ?? "command");
  drawText($("[data-f=text]", element), item);
  drawEffects($("[data-f=effects]", element), item.effects ?? []);
  const lines = item.text.split("\n").length;
  const note = $("[data-f=lines]", element);
  note.hidden = lines <= MOST_LINES;
  setText(note, `${number(lines)} lines`);
  setText($("[data-f=who]", element), [item.tenant, item.name].filter(Boolean).map(shown).join(" · "));
  const [rule] = (item.rules ?? []).filter((each) => each.decision === "ask").concat(item.rules ?? []);
  setText($("[data-f=rule]", element), rule ? `${rule.id}: ${plainReason(rule.reason)}` : plainReason(item.reason));
  setText($("[data-f=directory]", element), shown(item.cwd || "/workspace"));
  tickCard(card);
}

function drawText(box, item) {
  box.replaceChildren(...marked(item.text, item.marks).map(([piece, risky]) => (risky ? h("mark", {}, shown(piece)) : shown(piece))));
  box.tabIndex = item.text.split("\n").length > MOST_LINES ? 0 : -1;
}

function drawEffects(place, effects) {
  const more = effects.length - MOST_EFFECTS;
  const texts = effects.slice(0, MOST_EFFECTS).map(oneLine);
  if (more > 0) texts.push(`and ${more} more`);
  place.replaceChildren(...texts.map((text) => h("li", {}, text)));
  place.hidden = !texts.length;
}

const mine = (item) => !only || item.session === only;

export function render() {
  if (!list || !known.has("approvals")) return;
  guarded(() => {
    for (const item of inOrder([...approvals.values()].filter(mine))) update(item);
    for (const card of cards.values()) if (isLive() && !approvals.has(card.item.id) && card.state !== "decided") look(card);
    for (const [id, card] of cards)
      if (card.state === "decided" && Date.now() - card.decidedAt > STAYS && !held()) {
        card.element.remove();
        cards.delete(id);
      }
    place();
  });
  const open = openCards().length;
  const total = [...approvals.values()].filter((item) => item.state === "waiting" && mine(item)).length;
  const none = $("#nothing-waits");
  if (none) none.hidden = cards.size > 0;
  const more = $("#more-cards");
  more.hidden = total <= open;
  setText(more, `${total - open} more, show`);
}

function update(item) {
  const card = cards.get(item.id);
  if (!card) {
    if (item.state === "waiting" && openCards().length < most) list.append(make(item).element);
    return;
  }
  const changed = card.token && item.token !== card.token;
  const first = !card.token;
  card.item = item;
  if (item.state !== "waiting") return decide(card);
  if (first) draw(card);
  else if (changed) showChange(card);
  else name(card);
}

function name({ element, item }) {
  setText($("[data-f=title]", element), titleOf(item));
  const session = $("[data-f=session]", element);
  session.href = `/sessions/${encodeURIComponent(item.session)}`;
  setText(session, shown(nameOfId(item.session)));
}

function showChange(card) {
  backToButtons(card);
  draw(card);
  $(".changed", card.element).hidden = false;
}

/** It is gone without a word: ask what became of it. */
async function look(card) {
  if (card.looking) return;
  card.looking = true;
  try {
    const item = await ask("GET", `/v1/approvals/${card.item.id}`);
    card.looking = false;
    if (item.state !== "waiting") guarded(() => decide(Object.assign(card, { item })));
  } catch {
    guarded(() => decide(Object.assign(card, { item: { ...card.item, state: "cancelled" } })));
  }
}

function decide(card) {
  if (card.state === "decided") return;
  const hadFocus = card.element.contains(document.activeElement);
  backToButtons(card);
  card.state = "decided";
  card.decidedAt = Date.now();
  card.element.classList.add("decided");
  $(".explanation", card.element).hidden = true;
  $(".buttons", card.element)?.replaceWith(h("p", { class: "outcome" }, shown(outcome(card.item))));
  if (hadFocus) $("#waiting-h").focus();
  setTimeout(render, STAYS + 50);
}

/** Puts cards in their order, unless somebody is at them. */
function place() {
  if (held()) return;
  const wanted = inOrder([...cards.values()].map((card) => card.item)).map((item) => cards.get(item.id).element);
  wanted.forEach((element, index) => list.children[index] !== element && list.insertBefore(element, list.children[index] ?? null));
}

/** Makes a change, and lets no card whose place it changed take a press for half a second. */
export function guarded(change) {
  const top = (element) => Math.round(element.getBoundingClientRect().top + list.scrollTop + scrollY);
  const before = new Map($$("article.card", list).map((element) => [element, top(element)]));
  change();
  for (const element of $$("article.card", list)) if (before.get(element) !== top(element)) guard(cardOf(element));
}

function guard(card) {
  if (!card) return;
  card.guardedUntil = performance.now() + GUARD;
  refreshCard(card);
  setTimeout(() => refreshCard(card), GUARD + 10);
}

const closed = (card) => !isLive() || card.busy || performance.now() < (card.guardedUntil ?? 0);
const refresh = () => cards.forEach(refreshCard);

function refreshCard(card) {
  for (const button of $$(".buttons button, .confirm button, .denial button", card.element))
    setAttribute(button, "aria-disabled", closed(card) && !button.dataset.back);
}

function tick() {
  for (const card of cards.values()) if (card.state !== "decided") tickCard(card);
}

function tickCard({ element, item }) {
  if (!item.expires) return;
  setText($("[data-f=waits]", element), clock(now() - item.created));
  const left = item.expires - now();
  const place = $("[data-f=left]", element);
  setText(place, clock(left));
  place.classList.toggle("soon", left < BOLD);
}

/** Allowing: at once, or for a critical command and a whole session in two steps. */
export function allow(card, scope) {
  if (!may("approve") || card.state !== "open" || closed(card)) return;
  if (scope === "session" || card.item.risk === "critical") return confirm(card, scope);
  send(card, "allow", scope, "");
}

function confirm(card, scope) {
  const { item, element } = card;
  const what = scope === "session"
    ? `Every later command of ${shown(nameOfId(item.session))} with these effects will run without a question.`
    : `It will run once in ${shown(nameOfId(item.session))}, asked for by ${shown(item.name || item.tenant)}.`;
  const yes = scope === "session" ? "Yes, allow for this session" : "Yes, allow once";
  const buttons = $(".buttons", element);
  const height = buttons.offsetHeight;
  const cancel = h("button", { type: "button", "data-back": "1" }, "Cancel");
  const go = h("button", { type: "button", class: "grave" }, yes);
  const first = h("div", { class: "first" }, cancel, h("p", {}, what));
  const group = h("div", { class: "confirm", role: "group", "aria-label": "Confirm" }, first, go);
  first.style.minHeight = `${height}px`;
  guarded(() => {
    buttons.hidden = true;
    buttons.after(group);
  });
  card.state = "confirm";
  card.confirmed = () => !closed(card) && send(card, "allow", scope, "");
  cancel.addEventListener("click", () => stepBack(card));
  go.addEventListener("click", (event) => event.detail < 2 && go.getAttribute("aria-disabled") !== "true" && card.confirmed());
  go.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
  cancel.focus();
  card.lapse = setTimeout(() => stepBack(card), LAPSE);
}

/** Denying, with a word to the agent. */
export function deny(card) {
  if (!may("approve") || card.state !== "open" || closed(card)) return;
  const buttons = $(".buttons", card.element);
  const id = `${card.element.id}-reason`;
  const box = h("input", { id, type: "text", maxlength: "500", autocomplete: "off", placeholder: "A person said no." });
  const cancel = h("button", { type: "button", "data-back": "1" }, "Cancel");
  const go = h("button", { type: "button", class: "primary" }, "Send denial");
  const form = h("div", { class: "denial" }, h("label", { for: id }, "Reason for the agent"), box, h("div", { class: "row" }, go, cancel));
  guarded(() => {
    buttons.hidden = true;
    buttons.after(form);
  });
  card.state = "deny";
  const finish = () => !closed(card) && send(card, "deny", "once", box.value.trim());
  go.addEventListener("click", finish);
  cancel.addEventListener("click", () => stepBack(card));
  box.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && !event.repeat && finish());
  box.focus();
}

function backToButtons(card) {
  clearTimeout(card.lapse);
  card.confirmed = null;
  $(".confirm, .denial", card.element)?.remove();
  const buttons = $(".buttons", card.element);
  if (buttons) buttons.hidden = false;
  if (card.state !== "decided") card.state = "open";
}

/** Esc: one step back. True if there was one. */
export function stepBack(card) {
  if (!card || !["confirm", "deny"].includes(card.state)) return false;
  const hadFocus = card.element.contains(document.activeElement);
  guarded(() => backToButtons(card));
  if (hadFocus) card.element.focus();
  return true;
}

async function send(card, decision, scope, reason) {
  if (card.busy) return;
  card.busy = true;
  refreshCard(card);
  try {
    const item = await ask("POST", `/v1/approvals/${card.item.id}`, { decision, scope, reason, token: card.token });
    approvals.set(item.id, item);
    guarded(() => decide(Object.assign(card, { item })));
  } catch (error) {
    await refused(card, decision, error);
  } finally {
    card.busy = false;
    refreshCard(card);
  }
}

async function refused(card, decision, error) {
  const { code, approval } = error.problem ?? {};
  if (code === "approval_decided" && approval) return guarded(() => decide(Object.assign(card, { item: approval })));
  if (code === "approval_changed" || code === "approval_decided") {
    const item = await ask("GET", `/v1/approvals/${card.item.id}`).catch(() => null);
    if (item?.state === "waiting") return guarded(() => showChange(Object.assign(card, { item })));
    if (item) return guarded(() => decide(Object.assign(card, { item })));
  }
  guarded(() => {
    stepBack(card);
    complain(card.element, decision, error);
  });
}

/** Rules, effects, what the wider scope would cover, what the agent is told. */
export function explain(card) {
  const button = $("[data-act=explain]", card.element);
  const place = $(".explanation", card.element);
  guarded(() => {
    place.hidden = !place.hidden;
    button.setAttribute("aria-expanded", String(!place.hidden));
    if (!place.hidden) place.replaceChildren(...explanation(card.item));
  });
  if (!place.hidden) addClasses(card, place);
}

function explanation(item) {
  const rules = (item.rules ?? []).map((rule) => h("li", {}, `${rule.id} (${rule.decision}, ${rule.risk}): ${oneLine(rule.reason)}`));
  const effects = (item.effects ?? []).map((effect) => h("li", {}, oneLine(effect)));
  const ids = (item.rules ?? []).filter((rule) => rule.decision === "ask").map((rule) => rule.id).join(", ");
  const scope = item.about === "host" ? "This host and port, until the session ends."
    : `Later commands of this session that only have effects of the same kind, in the same places, by the same programs, for ${ids || "the same rules"}.`;
  return [
    h("h4", {}, "Rules"), h("ul", {}, ...rules), h("h4", {}, "Effects"), h("ul", { "data-f": "classes" }, ...effects),
    h("h4", {}, "Allow for this session covers"), h("p", {}, scope),
    h("h4", {}, "What the agent is told"), h("p", {}, `If denied: “${oneLine(item.reason)}” and your reason, else “A person said no.” If allowed: only the output.`),
  ];
}

/** The policy names the effects in full, with the classes of their paths. */
async function addClasses(card, place) {
  const { item } = card;
  if (item.about && item.about !== "command") return;
  const verdict = await ask("POST", "/v1/check", { command: item.text, policy: item.policy.split("@")[0], cwd: item.cwd }).catch(() => null);
  const list = $("[data-f=classes]", place);
  if (verdict?.effects?.length && list) guarded(() => list.replaceChildren(...verdict.effects.map((effect) => h("li", {}, oneLine(effect)))));
}

/** Keys that act on the card with the focus. */
export const cardKeys = {
  a: (card) => allow(card, "once"),
  s: (card) => allow(card, "session"),
  d: (card) => deny(card),
  e: (card) => card.state !== "decided" && explain(card),
  y: (card) => card.confirmed?.(),
};

$("#more-cards")?.addEventListener("click", () => {
  most += 50;
  render();
});
