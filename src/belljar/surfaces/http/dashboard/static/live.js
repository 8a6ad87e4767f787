/**
 * What every page but `login` and `terminal` shares: the stream, what it said, and whether it is current.
 *
 * `data-live` on <html> is the one truth about that. While it is "false" no key and no button writes anything.
 */
import { $, h, setText, ask } from "./dom.js";
import { Feed } from "./feed.js";
import { count, nameOf, oneLine, RISKS, time } from "./present.js";

const root = document.documentElement;
const PATIENCE = 3000;
const NEWS = 2000;
const WORKER = new URL("./worker.js", import.meta.url).href;

export const me = { id: root.dataset.key, scopes: (root.dataset.scopes ?? "").split(" ") };
export const may = (scope) => ["admin", "operator", scope].some((each) => me.scopes.includes(each));
export const sessions = new Map();
export const approvals = new Map();
export const audit = new Map();
const stores = { sessions, approvals, audit };
const skew = root.dataset.now ? Number(root.dataset.now) - Date.now() / 1000 : 0;
/** The server's time, in seconds. */
export const now = () => Date.now() / 1000 + skew;

const listeners = { change: [], output: [], commands: [], live: [] };
export const on = (what, listener) => listeners[what].push(listener);
const emit = (what, ...said) => listeners[what].forEach((listener) => listener(...said));

let port;
let live = false;
let ever = false;
/** Topics that have had their snapshot: before it, a screen keeps what the server wrote. */
export const known = new Set();
let topics = ["approvals", "sessions"];
const began = Date.now();

export const isLive = () => live;
export const waiting = () => [...approvals.values()].filter((each) => each.state === "waiting");
export const nameOfId = (id) => nameOf(sessions.get(id)) || id;

/** A key that sees only what is its own may not follow the tenant's trail. */
const all = (more) => ["approvals", "sessions", ...more].filter((topic) => topic !== "audit" || root.dataset.reach === "tenant");

export function follow(more) {
  const wanted = all(more);
  if (String(wanted) === String(topics) && port) return;
  topics = wanted;
  port?.postMessage({ topics });
}

export function connect(more = []) {
  topics = all(more);
  port = open();
  port.onmessage = ({ data }) => hear(data);
  port.postMessage({ topics });
  setInterval(() => port.postMessage({}), 10_000);
  addEventListener("pagehide", () => port.postMessage({ bye: true }));
  addEventListener("pageshow", (event) => event.persisted && port.postMessage({ topics }));
  setTimeout(() => !ever && setLive(false, began), PATIENCE);
  warnBeforeTheEnd();
}

function open() {
  if (!window.SharedWorker) {
    const { port1, port2 } = new MessageChannel();
    new Feed().join(port1);
    return port2;
  }
  const policy = window.trustedTypes?.createPolicy("stream", { createScriptURL: () => WORKER });
  const shared = new SharedWorker(policy ? policy.createScriptURL("") : WORKER, { type: "module", name: "belljar" });
  return shared.port;
}

let due = null;
function changed(topic) {
  if (due) return void due.add(topic);
  due = new Set([topic]);
  setTimeout(() => {
    const topics = due;
    due = null;
    headline();
    emit("change", topics);
  }, 0);
}

function hear(said) {
  if ("live" in said) return hearLive(said);
  if (said.topic === "output") return emit("output", said.pieces);
  if (said.topic === "commands") return emit("commands", said);
  const store = stores[said.topic];
  if (!store) return;
  if (said.snapshot) {
    known.add(said.topic);
    store.clear();
    for (const item of said.snapshot) store.set(item.id ?? item.seq, item);
  } else {
    for (const [id, item] of said.puts) {
      if (said.topic === "approvals" && item?.state === "waiting" && store.get(id)?.state !== "waiting") news.push(item);
      if (item) store.set(id, item);
      else store.delete(id);
    }
    if (said.topic === "audit") for (const id of [...audit.keys()].slice(0, -20)) audit.delete(id);
  }
  if (news.length) tellNews();
  changed(said.topic);
}

function hearLive(said) {
  if (said.signedOut) return signedOut();
  $("#signed-out")?.remove();
  if (said.live || ever || Date.now() - began > PATIENCE) setLive(said.live, said.since);
}

function setLive(value, since) {
  if (ever && value === live) return;
  live = value;
  ever = true;
  root.dataset.live = String(value);
  root.toggleAttribute("data-lost", !value);
  const connection = $("#connection");
  if (connection) setText($("[data-f=connection]", connection), value ? "Live" : "Not live");
  $("#lost")?.remove();
  if (!value)
    $("#alerts").append(h("p", { id: "lost", role: "alert", class: "lost" }, `Not live since ${time(since / 1000)}. Trying again.`));
  headline();
  emit("live", value);
}

/** Title and icon: visible in a row of tabs. */
function headline() {
  if (live && !known.has("approvals")) return;
  const waits = live ? waiting().length : 0;
  const bare = root.dataset.title;
  setTitle(!live && ever ? `(!) ${bare}` : waits ? `(${waits}) ${bare}` : bare);
  const icon = $("link[rel=icon]");
  const href = !live && ever ? "/favicon.svg?lost=1" : `/favicon.svg?waiting=${waits}`;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

function setTitle(title) {
  if (ever && document.title !== title) document.title = title;
}

const news = [];
let told = 0;
let telling = 0;
function tellNews() {
  if (telling) return;
  telling = setTimeout(() => {
    telling = 0;
    told = Date.now();
    const fresh = news.splice(0);
    const total = waiting().length;
    const [one] = fresh.sort((a, b) => RISKS.indexOf(a.risk) - RISKS.indexOf(b.risk));
    const about = fresh.length > 1 ? `${fresh.length} new approvals.`
      : `New approval: ${one.risk}, ${nameOfId(one.session)}, ${oneLine(one.text).slice(0, 80)}.`;
    setText($("#news"), `${about} ${total} waiting.`);
  }, Math.max(50, told + NEWS - Date.now()));
}

function signedOut() {
  setLive(false, Date.now());
  if ($("#signed-out")) return;
  const next = encodeURIComponent(location.pathname + location.search);
  const link = h("a", { class: "button", href: `/login?next=${next}` }, "Sign in");
  const dialog = h("dialog", { id: "signed-out", "aria-labelledby": "signed-out-h" }, h("h2", { id: "signed-out-h" }, "Signed out"),
    h("p", {}, "Your key or its sign-in has ended. What you see is no longer current."), h("p", { class: "row" }, link));
  document.body.append(dialog);
  dialog.showModal();
  link.focus();
}

function warnBeforeTheEnd() {
  const until = Number(root.dataset.until || 0);
  if (!until) return;
  const wait = (until - now() - 900) * 1000;
  setTimeout(() => {
    const stay = h("button", { type: "button" }, "Stay signed in");
    const note = h("p", { role: "status", class: "notice" }, "You will be signed out in less than 15 minutes. ", stay);
    stay.addEventListener("click", () => location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}&again=1`));
    $("#alerts").append(note);
  }, Math.max(0, Math.min(wait, 2 ** 31 - 1)));
}

/** Ends the sign-in here and on the server. */
export async function signOut() {
  try {
    await ask("POST", "/logout");
  } catch {
    // Gone already.
  }
  location.assign("/login");
}

export const isWaiting = (session) => count(session.waiting) > 0;
