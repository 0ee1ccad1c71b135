// Parts that several pages have.

import {make, setText} from "./elements.js";
import {shortId} from "./format.js";

/** The link to a page. @param {string} kind @param {string} [name] */
export function linkTo(kind, name = "") {
  return name ? `#/${kind}/${encodeURIComponent(name)}` : `#/${kind}`;
}

/** The label of a node, else the first digits of its id. @param {string} id @param {string} [name] */
export function nodeText(id, name = "") {
  return name || shortId(id);
}

/** Numbers at the top of a page. */
export class Tiles {
  constructor() {
    this.element = make("dl", {class: "tiles"});
    this.values = new Map();
  }

  /** @param {string} title @param {string} text @param {boolean} [isBad] */
  set(title, text, isBad = false) {
    let tile = this.values.get(title);
    if (!tile) {
      const value = make("dd");
      tile = {box: make("div", {class: "tile"}, make("dt", {}, title), value), value};
      this.values.set(title, tile);
      this.element.append(tile.box);
    }
    setText(tile.value, text);
    tile.box.classList.toggle("is-bad", isBad);
  }
}

/** Faults, as sentences. */
export class Faults {
  constructor() {
    this.element = make("ul", {class: "findings", "aria-label": "Faults", hidden: true});
  }

  /** @param {string[]} texts */
  update(texts) {
    this.element.hidden = !texts.length;
    const shown = texts.slice(0, 20);
    if (shown.join("\n") !== this.shown) {
      this.shown = shown.join("\n");
      this.element.replaceChildren(...shown.map(text => make("li", {}, text)));
    }
  }
}
