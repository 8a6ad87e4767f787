/** Questions before what cannot be undone, and stopping. Each has the same form: Cancel has the focus, `y` agrees. */
import { $, ask, complain, h } from "./dom.js";
import { isLive } from "./live.js";
import { commandText, count, nameOf, number, oneLine } from "./present.js";

/** Asks; true if the answer is yes. `typed`: a number that must be typed first. */
export function question({ title, parts, yes, typed = null, wide = false }) {
  return new Promise((answer) => {
    const cancel = h("button", { type: "button" }, "Cancel");
    const go = h("button", { type: "button", class: "grave", "aria-disabled": String(typed !== null) }, yes);
    const box = typed === null ? null : h("input", { id: "typed", type: "text", inputmode: "numeric", autocomplete: "off" });
    const dialog = h("dialog", { "aria-labelledby": "question-h", class: wide ? "wide" : null }, h("h2", { id: "question-h" }, title), ...parts,
      box && h("p", {}, h("label", { for: "typed" }, `Type ${typed} to confirm`), box), h("p", { class: "row" }, cancel, go));
    const close = (said) => {
      if (said && go.getAttribute("aria-disabled") === "true") return;
      dialog.remove();
      before?.focus?.();
      answer(said);
    };
    const before = document.activeElement;
    box?.addEventListener("input", () => go.setAttribute("aria-disabled", String(box.value.trim() !== String(typed))));
    cancel.addEventListener("click", () => close(false));
    go.addEventListener("click", () => close(true));
    dialog.addEventListener("cancel", (event) => (event.preventDefault(), close(false)));
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "y" && !event.repeat && event.target !== box && !event.ctrlKey && !event.metaKey) (event.preventDefault(), close(true));
      if (event.key === "Enter" && !event.repeat && event.target === box) close(true);
    });
    document.body.append(dialog);
    dialog.showModal();
    (box ? cancel : cancel).focus();
  });
}

/** Says something that is to be read and closed. */
export function notice(title, parts, close = "Close") {
  const button = h("button", { type: "button" }, close);
  const dialog = h("dialog", { "aria-labelledby": "notice-h" }, h("h2", { id: "notice-h" }, title), ...parts, h("p", { class: "row" }, button));
  return new Promise((closed) => {
    const end = () => (dialog.remove(), closed());
    button.addEventListener("click", end);
    dialog.addEventListener("cancel", end);
    document.body.append(dialog);
    dialog.showModal();
  });
}

const list = (items) => h("ul", { class: "names" }, ...items.map((item) => h("li", {}, item)));

function consequences(session) {
  const running = session.current ? [oneLine(commandText(session.current.command))] : [];
  const more = count(session.running) - running.length;
  if (more > 0) running.push(`and ${more} more`);
  const kept = session.staged && (session.staged.files ?? session.staged.added + session.staged.removed);
  return [
    h("p", {}, running.length ? "These commands end:" : "No command is running."),
    running.length ? list(running) : null,
    kept ? h("p", {}, `Changes that are not yet applied are kept: +${session.staged.added} −${session.staged.removed}.`) : null,
  ].filter(Boolean);
}

export async function stop(session, place) {
  if (!session || !isLive() || session.state === "ended") return;
  const title = `Stop ${oneLine(nameOf(session))}?`;
  if (!(await question({ title, parts: consequences(session), yes: "Stop it" })) || !isLive()) return;
  await ask("DELETE", `/v1/sessions/${session.id}`).catch((error) => complain(place ?? $("#alerts"), "stop", error));
}

export async function stopAll(sessions, place) {
  if (!sessions.length || !isLive()) return;
  const total = sessions.length;
  const parts = [list(sessions.map((session) => oneLine(nameOf(session))))];
  const title = `Stop ${number(total)} session${total === 1 ? "" : "s"}?`;
  if (!(await question({ title, parts, yes: "Stop them", typed: total })) || !isLive()) return;
  const done = await Promise.allSettled(sessions.map((session) => ask("DELETE", `/v1/sessions/${session.id}`)));
  const failed = done.filter((each) => each.status === "rejected");
  if (failed.length) complain(place ?? $("#alerts"), `stop ${failed.length} of ${total}`, failed[0].reason);
}

export async function togglePause(session, place) {
  if (!session || !isLive() || session.state === "ended") return;
  const paused = !(session.paused || session.state === "paused");
  await ask("PATCH", `/v1/sessions/${session.id}`, { paused }).catch((error) => complain(place ?? $("#alerts"), paused ? "pause" : "resume", error));
}
