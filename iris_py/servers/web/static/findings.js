// The page of findings: the checks of `iris doctor` that need no machine, executed when the viewer asks.

import {make, setText} from "./elements.js";
import {clock, duration} from "./format.js";
import {linkTo, Tiles} from "./parts.js";

const ORDER = ["FAULT", "warning", "skipped", "ok"];
const STATES = {none: "Not examined yet.", failed: "The last examination was not finished. The log of the door has the reason."};

export class Findings {
  constructor() {
    this.tiles = new Tiles();
    this.button = /** @type {HTMLButtonElement} */ (make("button", {type: "button", class: "act", onclick: () => this.examine()}, "Examine the network"));
    this.progress = /** @type {HTMLProgressElement} */ (make("progress", {"aria-label": "Checks done", hidden: true}));
    this.state = make("p", {role: "status"});
    this.problem = make("p", {class: "problem", role: "alert"});
    this.list = make("ul", {class: "checks", "aria-label": "Findings"});
    this.shown = "";
    this.children = [
      make("p", {class: "fine"}, "The checks of iris doctor that need no machine. A node of the door joins the network for some seconds and asks the others."),
      make("div", {class: "examine"}, this.button, this.progress, this.state), this.problem, this.tiles.element, this.list,
    ];
  }

  async examine() {
    this.button.disabled = true;
    setText(this.problem, "");
    const answer = await fetch("v1/findings", {method: "POST", headers: {"Iris-Request": "1"}}).catch(() => null);
    if (!answer?.ok) setText(this.problem, answer ? (await answer.json()).title : "The door does not answer.");
  }

  /** @param {any} page */
  update(page) {
    const isRunning = page.state === "running";
    this.button.disabled = isRunning || page.wait_s > 0;
    this.progress.hidden = !isRunning;
    this.progress.max = page.steps || 1;
    this.progress.value = Math.max(0, page.step_number - 1);
    setText(this.button, !isRunning && page.wait_s > 0 ? `Examine again in ${page.wait_s} s` : "Examine the network");
    const cut = page.clusters_left_out ? ` ${page.clusters_left_out} clusters with fewer requests were left out.` : "";
    const state = isRunning ? `Check ${page.step_number} of ${page.steps}: ${page.step}` : STATES[page.state] ?? `Examined at ${clock(page.began_unix_s)}.`;
    setText(this.state, state + cut);
    this.tiles.element.hidden = page.state === "none";
    this.tiles.set("faults", String(page.summary.faults), page.summary.faults > 0);
    this.tiles.set("warnings", String(page.summary.warnings));
    this.tiles.set("fine", String(page.summary.ok));
    this.tiles.set("skipped", String(page.summary.skipped));
    const items = [...page.items].sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status));
    const shown = JSON.stringify(items);
    if (shown === this.shown) return;
    this.shown = shown;
    this.list.replaceChildren(...items.map(makeFinding));
  }
}

/** @param {any} item */
function makeFinding(item) {
  const kind = item.status === "FAULT" ? "is-bad" : item.status === "warning" ? "is-warning" : "";
  const title = item.cluster ? make("a", {href: linkTo("cluster", item.cluster)}, item.cluster) : item.check;
  return make("li", {class: `check ${kind}`},
    make("p", {}, make("b", {class: "status"}, item.status === "FAULT" ? "fault" : item.status), " ",
      make("b", {}, item.cluster ? "cluster " : "", title), `: ${item.cause}`, make("span", {class: "fine"}, item.seconds >= 0.1 ? ` ${duration(item.seconds)}` : "")),
    item.advice ? make("p", {}, item.advice) : null,
    ...item.hints.map(hint => make("p", {}, make("code", {}, hint))));
}
