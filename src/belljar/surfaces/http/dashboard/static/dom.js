/** Making and changing elements, and asking the service. Texts are only ever set as text. */

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

/** `h("p", {class: "dim"}, "text", child)` */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null && child !== false));
  return made;
}

export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element && element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Fills the parts of an element that are named by `data-f`. */
export function fill(root, texts) {
  for (const [name, text] of Object.entries(texts)) setText($(`[data-f="${name}"]`, root), text);
}

export const copyOf = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

export class Refused extends Error {
  constructor(status, problem, after) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
    this.problem = problem;
    if (after) this.message += ` Try again in ${after} s.`;
  }
}

/** One request to `/v1`. Writes carry the header that a foreign page cannot send. */
export async function ask(method, path, body, headers = {}) {
  const sent = { Accept: "application/json", "Belljar-Request": "1", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refused(0, { detail: "the service cannot be reached." });
  }
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    found = { detail: text };
  }
  if (!answer.ok) throw new Refused(answer.status, found ?? {}, answer.headers.get("Retry-After"));
  return found;
}

/** `Could not allow: DETAIL`, in its place, until dismissed. */
export function complain(place, what, error) {
  place.querySelector(":scope > .complaint")?.remove();
  const alert = h("div", { role: "alert", class: "complaint" }, h("span", {}, `Could not ${what}: ${error.message}`));
  alert.append(h("button", { type: "button", class: "quiet", onclick: () => alert.remove() }, "Dismiss"));
  place.append(alert);
}

export const typing = (target) =>
  target instanceof HTMLElement && (target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable);
