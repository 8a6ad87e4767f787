/**
 * Output of a command as lines of text, the last 2,000 of them.
 *
 * Bytes come in with their position in the command's log, so a snapshot after a lost connection adds only what is new.
 * Lines are split on bytes: a line feed is never inside a character.
 */
import { $, $$, h } from "./dom.js";
import { number, outputText } from "./present.js";

export const LINES = 2000;
export const WIDTH = 2000;
const KEPT = 4 * WIDTH;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function bytesOf(piece) {
  if (piece.base64 === undefined) return encoder.encode(piece.text ?? "");
  return Uint8Array.from(atob(piece.base64), (character) => character.charCodeAt(0));
}

/** One line's text: cut at 2,000 characters, with how many more there are. */
export function lineText(bytes, more = 0) {
  const characters = [...outputText(decoder.decode(bytes))];
  const beyond = Math.max(0, characters.length - WIDTH) + more;
  return beyond ? `${characters.slice(0, WIDTH).join("")}… ${number(beyond)} more characters` : characters.join("");
}

const starts = (bytes) => bytes.reduce((sum, byte) => sum + ((byte & 0xc0) !== 0x80), 0);

class Line {
  constructor(at) {
    this.at = at;
    this.clear();
  }

  clear() {
    this.bytes = new Uint8Array(0);
    this.more = 0;
    this.returned = false;
  }

  add(bytes) {
    if (!bytes.length) return;
    if (this.returned) this.clear();
    const last = bytes.lastIndexOf(13, bytes.length - 2);
    if (last >= 0) {
      this.clear();
      bytes = bytes.subarray(last + 1);
    }
    this.returned = bytes.at(-1) === 13;
    const text = this.returned ? bytes.subarray(0, -1) : bytes;
    const room = KEPT - this.bytes.length;
    const both = new Uint8Array(this.bytes.length + Math.min(room, text.length));
    both.set(this.bytes);
    both.set(text.subarray(0, room), this.bytes.length);
    this.bytes = both;
    if (text.length > room) this.more += starts(text.subarray(room));
  }

  get text() {
    return lineText(this.bytes, this.more);
  }
}

export class Log {
  /** `link(at)` gives a line's own address; without it lines have no numbers. */
  constructor(box, { link = null, first = 1, next = null, following = () => true } = {}) {
    this.box = box;
    this.link = link;
    this.number = first;
    this.next = next;
    this.following = following;
    this.line = null;
    this.element = null;
  }

  clear() {
    this.box.replaceChildren();
    Object.assign(this, { next: null, line: null, element: null, number: 1 });
  }

  add(pieces) {
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 24;
    const made = document.createDocumentFragment();
    for (const piece of pieces) {
      if (piece.bytes !== undefined && piece.text === undefined && piece.base64 === undefined) this.lose(piece, made);
      else this.take(piece, made);
    }
    this.box.append(made);
    this.trim();
    if (atEnd && this.following()) this.box.scrollTop = this.box.scrollHeight;
  }

  lose({ offset, bytes }, made) {
    if (this.next !== null && offset + bytes <= this.next) return;
    this.next = offset + bytes;
    this.line = null;
    made.append(h("div", { class: "line gap" }, `${number(bytes)} bytes are gone`));
  }

  take(piece, made) {
    let bytes = bytesOf(piece);
    const offset = piece.offset ?? this.next ?? 0;
    if (this.next !== null && offset < this.next) {
      if (offset + bytes.length <= this.next) return;
      bytes = bytes.subarray(this.next - offset);
    }
    let at = Math.max(offset, this.next ?? 0);
    this.next = at + bytes.length;
    for (let start = 0; start < bytes.length; ) {
      const end = bytes.indexOf(10, start);
      const stop = end < 0 ? bytes.length : end;
      this.open(at + start, made);
      this.line.add(bytes.subarray(start, stop));
      this.draw();
      if (end >= 0) this.line = null;
      start = stop + 1;
    }
  }

  open(at, made) {
    if (this.line) return;
    this.line = new Line(at);
    this.element = h("div", { class: "line" });
    if (this.link) this.element.append(h("a", { href: this.link(at), "data-at": at }, String(this.number)));
    this.element.append(h("bdi", { dir: "ltr" }));
    this.number += 1;
    made.append(this.element);
  }

  draw() {
    this.element.lastElementChild.textContent = this.line.text;
  }

  trim() {
    const extra = this.box.childElementCount - LINES;
    if (extra <= 0) return;
    const range = document.createRange();
    range.setStart(this.box, 0);
    range.setEnd(this.box, extra);
    range.deleteContents();
    this.trimmed?.(this.number - 1 - LINES);
  }
}

/** Marks the lines that hold a text, and goes from one to the next. */
export class Search {
  constructor(input, box, status) {
    Object.assign(this, { input, box, status, at: -1 });
    input.addEventListener("input", () => this.find());
    input.addEventListener("keydown", (event) => event.key === "Enter" && this.go(event.shiftKey ? -1 : 1));
  }

  find() {
    const words = this.input.value.toLowerCase();
    this.at = -1;
    for (const line of $$(".line", this.box)) {
      line.classList.remove("here");
      line.classList.toggle("found", words !== "" && ($("bdi", line)?.textContent ?? "").toLowerCase().includes(words));
    }
    if (words) this.go(1);
    else this.status.textContent = "";
  }

  go(step) {
    const found = $$(".line.found", this.box);
    this.at = found.length ? (this.at + step + found.length) % found.length : -1;
    for (const [index, line] of found.entries()) line.classList.toggle("here", index === this.at);
    found[this.at]?.scrollIntoView({ block: "nearest" });
    this.status.textContent = found.length ? `${this.at + 1} of ${found.length}` : "Nothing found";
  }
}
