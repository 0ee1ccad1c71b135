// The newest messages of a pattern, while the viewer wants them: an event stream of the viewer's own token.

import {make, setText} from "./elements.js";
import {bytes, clock, number} from "./format.js";
import {Table} from "./table.js";

const MESSAGES_MAX = 50;
const TEXT_MAX = 200;
/** Time between two updates of the table (ms): nobody reads faster. */
const DRAW_MS = 250;

export class Tail {
  /** @param {string} pattern */
  constructor(pattern) {
    this.pattern = pattern;
    /** @type {AbortController | null} */
    this.reading = null;
    this.messages = [];
    this.count = 0;
    this.missed = 0;
    this.isDue = false;
    this.button = /** @type {HTMLButtonElement} */ (make("button", {type: "button", class: "act", onclick: () => this.reading ? this.stop() : this.start()}, "Follow"));
    this.problem = make("p", {class: "problem", role: "alert"});
    this.state = make("p", {}, "Follow the pattern to see its messages. Your token needs the right to subscribe.");
    this.table = new Table("Messages", [
      {title: "time", text: item => clock(item.unixS), sort: item => item.order},
      {title: "topic", text: item => item.topic},
      {title: "payload", text: item => item.text},
    ], {key: item => String(item.order), empty: "No message yet.", sort: 0, isDescending: true});
    this.table.element.hidden = true;
    this.element = make("section", {}, make("h2", {}, "Messages"), make("div", {class: "examine"}, this.button, this.problem, this.state), this.table.element);
  }

  async start() {
    this.reading = new AbortController();
    setText(this.button, "Stop");
    setText(this.problem, "");
    const {signal} = this.reading;
    try {
      const answer = await fetch(`v1/topics/events?pattern=${encodeURIComponent(this.pattern)}&as=text`,
        {headers: {Accept: "application/x-ndjson"}, signal});
      if (!answer.ok || !answer.body) { setText(this.problem, (await answer.json()).title); return; }
      this.table.element.hidden = false;
      this.draw();
      const decoder = new TextDecoder();
      const reader = answer.body.getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + decoder.decode(part.value, {stream: true})).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) if (line) this.take(JSON.parse(line));
      }
      setText(this.problem, "The door has ended the stream.");
    } catch (error) {
      if (!signal.aborted) setText(this.problem, "The door does not answer.");
    } finally {
      if (this.reading?.signal === signal) this.stop();
    }
  }

  stop() {
    this.reading?.abort();
    this.reading = null;
    setText(this.button, "Follow");
  }

  /** @param {any} event */
  take(event) {
    if (event.kind === "gap") this.missed += event.missed ?? 0;
    if (event.kind !== "message") return;
    const text = event.text ?? (event.base64 === undefined ? JSON.stringify(event.json) : `${bytes(event.base64.length * 3 / 4)}, no text`);
    this.count += 1;
    this.messages.unshift({order: this.count, unixS: Date.now() / 1000, topic: event.topic, text: text.slice(0, TEXT_MAX)});
    this.messages.length = Math.min(this.messages.length, MESSAGES_MAX);
    if (!this.isDue) {
      this.isDue = true;
      setTimeout(() => { this.isDue = false; this.draw(); }, DRAW_MS);
    }
  }

  draw() {
    setText(this.state, `${number(this.count)} messages${this.missed ? `, ${number(this.missed)} missed, for they came too fast` : ""}`);
    this.table.update(this.messages);
  }
}
