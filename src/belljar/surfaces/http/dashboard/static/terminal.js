/** A shell of its own in the browser. Only this page may make styles; it shows no approvals and asks for nothing else. */
import { FitAddon } from "./fit.mjs";
import { Terminal } from "./xterm.mjs";

const main = document.querySelector("#main");
const id = main.dataset.session;
const button = document.querySelector("#open-terminal");
const state = document.querySelector("#terminal-state");
const place = document.querySelector("#terminal");

document.querySelector("#sign-out").addEventListener("click", async () => {
  await fetch("/logout", { method: "POST", headers: { "Belljar-Request": "1" } }).catch(() => {});
  location.assign("/login");
});

async function begin() {
  button.disabled = true;
  const terminal = new Terminal({ fontFamily: "ui-monospace, DejaVu Sans Mono, monospace", fontSize: 13, theme: { background: "#101418" }, scrollback: 5000, screenReaderMode: true });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  fit.fit();
  const body = { command: ["bash", "-i"], pty: true, size: [terminal.rows, terminal.cols], env: { TERM: "xterm-256color" } };
  const answer = await fetch(`/v1/sessions/${id}/commands`, {
    method: "POST", headers: { "Content-Type": "application/json", "Belljar-Request": "1", Prefer: "wait=0" }, body: JSON.stringify(body),
  });
  const command = await answer.json();
  if (!answer.ok) return fail(terminal, command.detail ?? "refused");
  attach(terminal, fit, command.id);
}

function fail(terminal, why) {
  state.textContent = `Could not open a terminal: ${why}`;
  terminal.dispose();
  button.disabled = false;
}

function attach(terminal, fit, command) {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/sessions/${id}/commands/${command}/attach`);
  socket.binaryType = "arraybuffer";
  const encoder = new TextEncoder();
  const send = (text) => socket.readyState === WebSocket.OPEN && socket.send(text);
  socket.onopen = () => {
    document.documentElement.dataset.live = "true";
    state.textContent = "Connected. The shell ends with the command exit; closing this page leaves it running.";
    terminal.focus();
  };
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") return terminal.write(new Uint8Array(data));
    const said = JSON.parse(data);
    if (said.dropped) terminal.write(`\r\n[${said.dropped.bytes} bytes are gone]\r\n`);
    if (said.ended) state.textContent = `The shell has ended (${said.ended.result?.cause ?? "not started"}).`;
  };
  socket.onclose = () => {
    document.documentElement.dataset.live = "false";
    if (state.textContent.startsWith("Connected")) state.textContent = "The connection is gone. The shell runs on.";
    button.disabled = false;
  };
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => send(JSON.stringify({ resize: [rows, cols] })));
  addEventListener("resize", () => fit.fit());
}

button?.addEventListener("click", () => {
  place.replaceChildren();
  begin().catch((error) => (state.textContent = `Could not open a terminal: ${error.message}`));
});
