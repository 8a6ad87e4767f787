/**
 * One event stream for a whole browser. It runs in a SharedWorker (worker.js), or in the page where there is none.
 *
 * Tabs say which topics they want; the stream asks for all of them together. What comes in is merged, and passed on at
 * most four times a second. A new snapshot replaces everything, so a lost connection leaves nothing doubled.
 */

const SILENCE = 3000; // the server pings each second
const RETRY = 1000;
const BEAT = 250;
const FORGET = 180_000; // a hidden tab's timers run once a minute
const MOST_OUTPUT = 262_144; // characters a beat and topic; a page keeps 2,000 lines
const KEPT = ["sessions", "approvals", "audit"];
const keyOf = (item) => item.id ?? item.seq;

export class Feed {
  constructor() {
    this.tabs = new Map();
    this.kept = new Map();
    this.pending = new Map();
    this.topics = "";
    this.live = false;
    this.signedOut = false;
    this.seen = Date.now();
    this.cut = null;
    this.beat = 0;
    setInterval(() => this.watch(), 500);
  }

  join(port) {
    port.onmessage = ({ data }) => this.hear(port, data);
    port.start();
  }

  hear(port, said) {
    if (said.bye) this.tabs.delete(port);
    else this.tabs.set(port, { topics: said.topics ?? this.tabs.get(port)?.topics ?? [], seen: Date.now() });
    if (said.topics) this.welcome(port, said.topics);
    this.settle();
  }

  /** A tab that asks for what is already here gets it at once. */
  welcome(port, topics) {
    port.postMessage({ live: this.live, since: this.seen, signedOut: this.signedOut });
    for (const topic of topics)
      if (this.kept.has(topic)) port.postMessage({ topic, snapshot: [...this.kept.get(topic).values()] });
  }

  settle() {
    const wanted = [...new Set([...this.tabs.values()].flatMap((tab) => tab.topics))].sort().join(",");
    if (wanted === this.topics) return;
    this.topics = wanted;
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.open(), 20);
  }

  async open() {
    this.cut?.abort();
    if (!this.topics) return void (this.cut = null);
    const mine = (this.cut = new AbortController());
    this.tried = Date.now();
    try {
      await this.read(mine);
    } catch {
      // Lost: the watch says so, and this tries again.
    }
    if (this.cut === mine) this.soon = setTimeout(() => this.cut === mine && this.open(), RETRY);
  }

  async read(mine) {
    const ask = (topics) => fetch(`/v1/events?topics=${topics}`, { signal: mine.signal, cache: "no-store", headers: { Accept: "text/event-stream" } });
    let answer = await ask(this.topics);
    // A command whose output was wanted may be gone: the rest goes on.
    if (answer.status === 404) answer = await ask(this.topics.split(",").filter((topic) => !topic.startsWith("output:")).join(","));
    if (answer.status === 401) return this.leave();
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done || this.cut !== mine) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.take(block);
    }
  }

  take(block) {
    let event = "", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5);
    }
    if (!event) return;
    this.seen = Date.now();
    if (!this.live) this.tell({ live: (this.live = true), since: this.seen, signedOut: (this.signedOut = false) });
    if (event !== "ping" && data) this.merge(event, JSON.parse(data));
  }

  merge(topic, data) {
    if (topic === "output" || topic.startsWith("output:")) return this.queue("output", data);
    const kept = this.kept.get(topic);
    if (data.kind === "snapshot") {
      this.pending.delete(topic);
      if (KEPT.includes(topic)) this.kept.set(topic, new Map(data.items.map((item) => [keyOf(item), item])));
      return this.tell({ topic, snapshot: data.items });
    }
    const id = data.kind === "remove" ? data.id : keyOf(data.item);
    if (data.kind === "remove") kept?.delete(id);
    else kept?.set(id, data.item);
    if (topic === "audit" && kept?.size > 20) kept.delete(kept.keys().next().value);
    if (!this.pending.has(topic)) this.pending.set(topic, new Map());
    this.pending.get(topic).set(id, data.kind === "remove" ? null : data.item);
    this.schedule();
  }

  queue(topic, data) {
    const pieces = this.pending.get(topic) ?? [];
    pieces.push(data);
    let total = 0;
    const fits = pieces.findLastIndex((piece) => (total += (piece.text ?? piece.base64 ?? "").length) > MOST_OUTPUT);
    this.pending.set(topic, fits > 0 ? pieces.slice(fits) : pieces);
    this.schedule();
  }

  schedule() {
    if (this.beat) return;
    this.beat = setTimeout(() => {
      this.beat = 0;
      for (const [topic, puts] of this.pending)
        this.tell(topic === "output" ? { topic, pieces: puts } : { topic, puts: [...puts] });
      this.pending.clear();
    }, BEAT);
  }

  tell(said) {
    for (const [port, tab] of this.tabs)
      if (!said.topic || said.topic === "output" || tab.topics.includes(said.topic)) port.postMessage(said);
  }

  leave() {
    this.signedOut = true;
    this.live = false;
    this.tell({ live: false, since: this.seen, signedOut: true });
  }

  watch() {
    const now = Date.now();
    for (const [port, tab] of this.tabs) if (now - tab.seen > FORGET) this.tabs.delete(port);
    this.settle();
    if (now - this.seen <= SILENCE) return;
    if (this.live) this.tell({ live: (this.live = false), since: this.seen, signedOut: this.signedOut });
    if (this.topics && now - this.tried > SILENCE) this.open(); // a server that takes the call and says nothing
  }
}
