/** One key, one act: on the card or row that has the focus, never on another. */
import { $, $$, h, typing } from "./dom.js";
import { isLive } from "./live.js";
import { notice } from "./dialogs.js";

const WRITES = new Set(["a", "s", "d", "y", "x", "p", "A", "u"]);
const HELP = [
  ["j k", "next, previous: cards first, then rows"], ["w", "first card"], ["t", "first row"], ["a", "allow once"],
  ["s", "allow for this session"], ["d", "deny"], ["e", "explain"], ["y", "yes, in a confirmation"], ["p", "pause or resume"],
  ["x", "stop"], ["l", "show the output"], ["Enter", "open its page"], ["/", "filter or search, then Enter"],
  ["space A u v", "changes: select, apply, undo, side by side"], ["?", "this help"], ["Esc", "one step back"],
];
const SETTING = "single-keys";

const single = () => localStorage.getItem(SETTING) !== "off";

/** `acts`: what a key does, given the element with the focus. */
export function startKeys(acts) {
  $("#help")?.addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return void (!$("dialog[open]") && acts.Escape?.(event.target, event));
    if (event.repeat || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
    if (typing(event.target) || $("dialog[open]") || !single()) return;
    if (event.key === "?") return void (event.preventDefault(), help());
    const act = acts[event.key];
    if (!act || (WRITES.has(event.key) && !isLive())) return;
    if ([" ", "Enter"].includes(event.key) && event.target.matches("button, a, input, summary")) return;
    event.preventDefault();
    act(event.target, event);
  });
}

export function help() {
  const box = h("input", { type: "checkbox", id: "single", checked: single() });
  box.addEventListener("change", () => localStorage.setItem(SETTING, box.checked ? "on" : "off"));
  const rows = HELP.flatMap(([keys, says]) => [h("dt", {}, ...keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, says)]);
  return notice("Keys", [h("dl", { class: "keys" }, ...rows), h("p", {}, box, h("label", { for: "single" }, "Single keys"))]);
}

/** Goes to the next or previous of these; the first if none has the focus. */
export function step(elements, by) {
  const at = elements.findIndex((each) => each.contains(document.activeElement));
  const to = at < 0 ? 0 : Math.max(0, Math.min(elements.length - 1, at + by));
  elements[to]?.focus();
  elements[to]?.scrollIntoView({ block: "nearest" });
}

export const focusables = () => $$("article.card:not(.decided)");
