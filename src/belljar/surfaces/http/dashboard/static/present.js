/** What a session, an approval or a number looks like in words. `present.py` says the same for the first HTML. */

export const MARKS = { waiting: "⚠", lost: "✕", failing: "✕", starting: "◌", paused: "‖", running: "▶", idle: "○", ended: "■" };
export const RISKS = ["critical", "high", "medium", "low"];
const RANKS = ["waiting", "lost", "failing", "hot", "denied", "running", "starting", "paused", "idle", "ended"];
const FAILING = new Set(["timeout", "out_of_memory", "output_limit", "sandbox_lost"]);
const PHASES = new Set(["queued", "pulling", "starting", "verifying"]);
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;
const SGR = /\x1b\[[0-9;:]*m/g;
const SOON = 300;
const DENIED_FOR = 300;

export const nameOf = (session) => session?.name || session?.id || "";
const code = (character) => "⟨U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩";

/** Text for a person: what cannot be seen is named. */
export const shown = (text) => String(text ?? "").replace(HIDDEN, code);
/** The same on one line. */
export const oneLine = (text) => shown(String(text ?? "").replace(/\s*\n\s*/g, " ↵ ").replace(/\t/g, " "));

/** One line of output: no colours, controls as their pictures. */
export function outputText(text) {
  return text.replace(SGR, "").replace(HIDDEN, (character) => {
    const point = character.codePointAt(0);
    return point < 32 ? String.fromCharCode(0x2400 + point) : point === 127 ? "␡" : code(character);
  });
}

export function status(session) {
  if (session.state === "ended") return { lost: "lost", failed: "failing" }[session.reason] ?? "ended";
  if (count(session.waiting)) return "waiting";
  if (session.silent) return "lost";
  if (!session.current && FAILING.has(session.last?.cause)) return "failing";
  if (PHASES.has(session.state)) return "starting";
  if (session.paused || session.state === "paused") return "paused";
  return session.current || count(session.running) ? "running" : "idle";
}

export function badges(session, now) {
  const living = session.state !== "ended";
  return [
    session.denied && now - session.denied < DENIED_FOR && "denied",
    living && session.hot && "hot",
    living && session.expires && session.expires - now < SOON && "ends soon",
  ].filter(Boolean);
}

/** Sorts what needs a person first; then what has run for longest. */
export function rank(session, now) {
  const word = status(session);
  const marks = badges(session, now);
  const first = [word, ...marks].map((each) => RANKS.indexOf(each)).filter((each) => each >= 0);
  return [Math.min(...first), session.current?.started ?? session.created ?? 0, session.id];
}

export const compare = (a, b) => {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
};
export const count = (value) => (Array.isArray(value) ? value.length : Number(value) || 0);

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}`;
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export const time = (unix) => new Date(unix * 1000).toTimeString().slice(0, 8);
export const number = (value) => Number(value).toLocaleString("en-US");

export function size(bytes) {
  for (const [unit, factor] of [["G", 2 ** 30], ["M", 2 ** 20], ["K", 2 ** 10]])
    if (bytes >= factor) return (bytes / factor).toFixed(bytes < 10 * factor && unit === "G" ? 1 : 0) + unit;
  return `${Math.round(bytes)}`;
}

/** The command that a row shows: the current one, else the last, which is dim; and since when. */
export function doing(session, asked) {
  if (asked) return { command: asked.text, since: asked.created, dim: false };
  if (session.current) return { command: session.current.command, since: session.current.started, dim: false };
  if (session.last) return { command: session.last.command, since: session.last.ended, dim: true };
  return { command: "", since: session.created, dim: true };
}

export const commandText = (command) => (Array.isArray(command) ? command.join(" ") : command ?? "");

/** `+12 −3`; nothing where nothing has changed. */
export const linesChanged = (staged) => (staged?.added || staged?.removed ? `+${staged.added} −${staged.removed}` : "");
/** A rule's reason, without the effect that it matched in the policy's own terms. */
export const plainReason = (text) => oneLine(text).replace(/ \([a-z_.]+: [^()]*\)$/, "");

/** Splits a text at the words that the findings name: `[["sudo", true], [" make", false]]`. */
export function marked(text, words) {
  const known = (words ?? []).filter(Boolean).map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  if (!known.length) return [[text, false]];
  const pieces = text.split(new RegExp(`(?<![\\w/.-])(${known.join("|")})(?![\\w/-])`, "u"));
  return pieces.map((piece, index) => [piece, index % 2 === 1]).filter(([piece]) => piece);
}

export function outcome(approval) {
  const said = approval.decided;
  const who = said?.name || said?.by || "someone";
  if (approval.state === "allowed") return said?.scope === "session" ? `Allowed for this session by ${who}` : `Allowed once by ${who}`;
  if (approval.state === "denied") return `Denied by ${who}: ${said?.reason || "A person said no."}`;
  if (approval.state === "expired") return "Expired: denied";
  return "Cancelled: the command has ended";
}

const EVENTS = { session_open: "opened", session_close: "closed", pause: "paused", resume: "resumed", start: "started", end: "ended", login: "signed in", key_created: "new key", key_revoked: "key revoked" };

export function eventWord(record) {
  if (record.kind === "verdict") return { deny: "denied", ask: "asked" }[record.verdict?.decision] ?? "judged";
  if (record.kind === "approval") return record.approved ? "allowed" : "refused";
  return EVENTS[record.kind] ?? record.kind;
}

export function eventText(record) {
  const ended = [record.cause, record.exit_code].filter((each) => each != null).join(" ");
  return oneLine(record.command || record.verdict?.canonical || record.host || record.reason || ended || record.made_name || record.gone_name || record.image);
}

export const moment = (record) => (typeof record.time === "string" ? Date.parse(record.time) / 1000 : record.time);
