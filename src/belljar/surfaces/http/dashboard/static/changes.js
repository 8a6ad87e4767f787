/** Changes of a session: choose files and hunks, apply, discard, undo. The diffs are the server's HTML. */
import { $, $$, ask, complain, h } from "./dom.js";
import { question } from "./dialogs.js";
import { isLive, may } from "./live.js";
import { renew, result } from "./page.js";
import { number, shown } from "./present.js";

const counted = (paths, word) => `${number(paths?.length ?? 0)} ${word}`;

export function startChanges(id) {
  const base = `/v1/sessions/${id}`;
  const files = () => $$("input[name=path]:checked").map((box) => box.value);
  const open = () => isLive() && may("approve");

  /** Files, and of those of which only some hunks are chosen, which. */
  function selection() {
    const hunks = {};
    const whole = files();
    for (const region of $$("[data-diff]")) {
      const boxes = $$("input[name=hunk]", region);
      const on = boxes.filter((box) => box.checked);
      if (!on.length || whole.includes(region.dataset.diff)) continue;
      if (on.length === boxes.length) whole.push(region.dataset.diff);
      else hunks[region.dataset.diff] = on.map((box) => Number(box.value));
    }
    return { paths: [...whole, ...Object.keys(hunks)], hunks };
  }

  async function apply(extra = {}) {
    if (!open()) return;
    try {
      const { paths, hunks } = selection();
      if (!paths.length) return result("Nothing is selected");
      const covered = (path) => paths.some((chosen) => path === chosen || path.startsWith(`${chosen}/`));
      const later = $$("tr[data-later]").map((row) => row.dataset.path).filter(covered);
      if (later.length && !extra.runs_later) {
        const parts = [h("p", {}, "Your machine runs them by itself, outside the sandbox:"), h("ul", { class: "names" }, ...later.map((path) => h("li", {}, shown(path))))];
        if (!(await question({ title: "These run on your machine later", parts, yes: "Apply them too" }))) return;
        extra = { ...extra, runs_later: true };
      }
      const body = { paths, ...extra };
      if (Object.keys(hunks).length) body.hunks = hunks;
      await send(body);
    } catch (error) {
      complain($("#acts-changes"), "apply", error);
    }
  }

  async function send(body) {
    const etag = $("#changes").dataset.etag;
    try {
      const said = await ask("POST", `${base}/apply`, body, etag && !body.force ? { "If-Match": etag } : {});
      await renew();
      const rest = [said.held?.length && counted(said.held, "held back"), said.refused?.length && counted(said.refused, "refused"), said.merged?.length && counted(said.merged, "merged")];
      result([counted(said.paths, "applied"), ...rest].filter(Boolean).join(", "));
    } catch (error) {
      if (error.problem?.code !== "conflict" || body.force) throw error;
      await conflict(body, error);
    }
  }

  /** Both sides changed: what was there, what is there, what the session has. */
  async function conflict(body, error) {
    const why = error.problem.paths ?? {};
    const paths = Array.isArray(why) ? why : Object.keys(why);
    if (!paths.length || Object.values(why).includes("changed since it was shown")) {
      await renew();
      throw error;
    }
    const texts = await Promise.all(paths.slice(0, 5).map((path) => ask("GET", `${base}/sides?${new URLSearchParams({ path })}`).catch(() => null)));
    const parts = paths.slice(0, 5).flatMap((path, index) => [h("h3", {}, shown(path)), three(texts[index])]);
    const yes = "Apply anyway";
    parts.unshift(h("p", {}, `${error.message} Applying anyway writes over what is on your side.`));
    if (await question({ title: "Changed on both sides", parts, yes, wide: true })) await send({ ...body, force: true });
  }

  const three = (sides) => h("div", { class: "three" }, ...["before", "yours", "theirs"].map((side, index) =>
    h("section", { "aria-label": ["Before", "On your side", "In the session"][index] }, h("h4", {}, ["Before", "On your side", "In the session"][index]), h("pre", {}, shown(sides?.[side] ?? "not a text, or not known")))));

  async function discard() {
    const paths = files();
    if (!open() && !(isLive() && may("run"))) return;
    if (!paths.length) return result("Nothing is selected");
    const parts = [h("p", {}, "They are gone for good:"), h("ul", { class: "names" }, ...paths.map((path) => h("li", {}, shown(path))))];
    if (!(await question({ title: `Discard ${paths.length} change${paths.length === 1 ? "" : "s"}?`, parts, yes: "Discard them" }))) return;
    try {
      const said = await ask("POST", `${base}/discard`, { paths });
      await renew();
      result(counted(said.paths, "discarded"));
    } catch (error) {
      complain($("#acts-changes"), "discard", error);
    }
  }

  async function undo() {
    if (!open()) return;
    try {
      const said = await ask("POST", `${base}/undo`, {});
      await renew();
      result(counted(said.paths, "undone"));
    } catch (error) {
      complain($("#acts-changes"), "undo", error);
    }
  }

  function toggleSides() {
    const url = new URL(location.href);
    if (url.searchParams.get("view") === "sides") url.searchParams.delete("view");
    else url.searchParams.set("view", "sides");
    location.assign(url);
  }

  const acts = { "apply-selected": () => apply(), "discard-selected": discard, "undo-apply": undo, sides: toggleSides };
  $("#main").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.getAttribute("aria-disabled") !== "true") acts[button.id]?.();
  });
  return {
    " ": (target) => $("input[type=checkbox]", target.closest("tr, [data-diff]") ?? target)?.click(),
    A: () => apply(),
    u: undo,
    v: toggleSides,
  };
}
