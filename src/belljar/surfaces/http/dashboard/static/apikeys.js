/** The keys' page: make one, which is shown once, and revoke one. */
import { $, $$, ask, complain, h } from "./dom.js";
import { notice, question } from "./dialogs.js";
import { startKeys } from "./keys.js";
import { isLive, me, now } from "./live.js";
import { renew, startPage } from "./page.js";

const SCOPES = ["run", "read", "approve", "admin"];
const LASTS = [["never", ""], ["in a day", 86_400], ["in a week", 604_800], ["in 30 days", 2_592_000]];

/** A dialog with a form; what it holds, or null. */
function form() {
  return new Promise((answer) => {
    const name = h("input", { id: "name", type: "text", maxlength: "64", autocomplete: "off", required: true });
    const scopes = SCOPES.map((scope) => [scope, h("input", { type: "checkbox", id: `scope-${scope}`, checked: scope === "read" })]);
    const lasts = h("select", { id: "expires" }, ...LASTS.map(([word, seconds]) => h("option", { value: seconds }, word)));
    const cancel = h("button", { type: "button" }, "Cancel");
    const make = h("button", { type: "button", class: "primary" }, "Make key");
    const dialog = h("dialog", { "aria-labelledby": "new-key-h" }, h("h2", { id: "new-key-h" }, "New key"),
      h("p", { class: "field" }, h("label", { for: "name" }, "Name"), name),
      h("fieldset", {}, h("legend", {}, "Scopes"), ...scopes.map(([scope, box]) => h("span", { class: "choice" }, box, h("label", { for: box.id }, scope)))),
      h("p", { class: "field" }, h("label", { for: "expires" }, "Expires"), lasts), h("p", { class: "row" }, cancel, make));
    const close = (said) => (dialog.remove(), answer(said));
    cancel.addEventListener("click", () => close(null));
    dialog.addEventListener("cancel", () => close(null));
    make.addEventListener("click", () => {
      if (!name.value.trim()) return name.focus();
      const expires = lasts.value ? now() + Number(lasts.value) : null;
      close({ name: name.value.trim(), scopes: scopes.filter(([, box]) => box.checked).map(([scope]) => scope), expires });
    });
    document.body.append(dialog);
    dialog.showModal();
    name.focus();
  });
}

async function makeKey() {
  const wanted = await form();
  if (!wanted) return;
  try {
    const made = await ask("POST", "/v1/keys", wanted);
    const box = h("input", { id: "key", type: "text", readonly: true, value: made.key, class: "secret" });
    box.addEventListener("focus", () => box.select());
    await notice("Your new key", [h("p", { class: "field" }, h("label", { for: "key" }, "Key"), box), h("p", {}, "Shown once")]);
    await renew();
  } catch (error) {
    complain($("#acts"), "make the key", error);
  }
}

async function revoke({ id, name }) {
  if (!isLive()) return;
  const own = id === me.id ? " This is the key you are signed in with." : "";
  const parts = [h("p", {}, `It and the keys made with it stop working at once; what its sessions run goes on.${own}`)];
  if (!(await question({ title: `Revoke ${name}?`, parts, yes: "Revoke it" }))) return;
  await ask("DELETE", `/v1/keys/${id}`).then(() => renew()).catch((error) => complain($("#acts"), "revoke", error));
}

$("#new-key")?.addEventListener("click", makeKey);
$("#main").addEventListener("click", (event) => event.target.closest("[data-revoke]") && revoke({ id: event.target.dataset.revoke, name: event.target.dataset.name }));
startKeys({ Escape: (target) => target.blur() });
startPage();
