// The page of the ring: each node at the angle of its id, and its links as chords; a large network by its zones.

import {make, setText} from "./elements.js";
import {number, shortId} from "./format.js";
import {linkTo, nodeText} from "./parts.js";
import {Table} from "./table.js";

const SIZE = 600;
const CENTRE = SIZE / 2;
const RADIUS = 186;
const ZONES_RADIUS = 170;
const COLOURS = 10;
/** Nodes up to which each has its name beside it. */
const NAMED_MAX = 48;
/** Rows of dots outwards, where ids are too near to each other. */
const ROWS = 6;
const STATES = {told: "answers", counts: "withholds its links", missing: "does not answer", refused: "refuses"};
const HINT = "Point at a node to see its links, and click to open its page.";
const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The angle of an id: 0 at the top, clockwise. @param {string} id */
const angleOf = id => Number.parseInt(id.slice(0, 12), 16) / 16 ** 12 * 2 * Math.PI;

/** @param {number} angle @param {number} radius @returns {[number, number]} */
const at = (angle, radius) => [CENTRE + radius * Math.sin(angle), CENTRE - radius * Math.cos(angle)];

/** The path between two places, bent towards the centre. @param {[number, number]} one angle and radius @param {[number, number]} other */
function chord([one, near], [other, far]) {
  let half = Math.abs(one - other) / 2, middle = (one + other) / 2;
  if (half > Math.PI / 2) { half = Math.PI - half; middle += Math.PI; }
  const points = [at(one, near), at(middle, 0.95 * Math.min(near, far) * Math.cos(half) ** 2), at(other, far)];
  const [start, bend, end] = points.map(point => point.map(value => value.toFixed(1)).join(" "));
  return `M${start}Q${bend} ${end}`;
}

/** The colour of each zone, the largest first; the last colour is for all others. @param {{zone: string}[]} items */
function coloursOf(items) {
  const sizes = new Map();
  for (const {zone} of items) if (zone) sizes.set(zone, (sizes.get(zone) ?? 0) + 1);
  const zones = [...sizes.keys()].sort((one, other) => sizes.get(other) - sizes.get(one) || (one < other ? -1 : 1));
  return new Map(zones.map((zone, index) => [zone, Math.min(index, COLOURS)]));
}

export class Ring {
  constructor() {
    this.shown = "";
    /** The node under the pointer, also after the picture was drawn anew. */
    this.pointed = "";
    this.picture = draw("svg", {role: "img", class: "ring-picture", "aria-label": "The ring"});
    const narrow = matchMedia("(max-width: 560px)");
    narrow.addEventListener("change", () => this.frame(narrow.matches));
    this.frame(narrow.matches);
    this.detail = make("p", {class: "ring-detail"});
    this.legend = make("ul", {class: "legend"});
    this.note = make("p", {class: "fine"});
    this.nodes = new Table("Nodes in the order of the ring", [
      {title: "node", text: item => nodeText(item.id, item.name), link: item => linkTo("node", item.id)},
      {title: "id", text: item => shortId(item.id), sort: item => item.id},
      {title: "zone", text: item => item.zone},
      {title: "address", text: item => item.address},
      {title: "links", text: item => number(item.links), sort: item => item.links, isNumber: true},
      {title: "state", text: item => STATES[item.state]},
    ], {key: item => item.id, isBad: item => item.state === "missing" || item.state === "refused", empty: "No node has answered.", sort: 1});
    this.zones = new Table("Zones", [
      {title: "zone", text: item => item.zone || "no zone"},
      {title: "nodes", text: item => number(item.nodes), sort: item => item.nodes, isNumber: true},
      {title: "links within", text: item => number(item.links), sort: item => item.links, isNumber: true},
    ], {key: item => item.zone, empty: "", sort: 1, isDescending: true});
    this.nodesTable = make("section", {}, make("h2", {}, "Nodes in the order of the ring"), this.nodes.element);
    this.zonesTable = make("section", {}, make("h2", {}, "Zones"), this.zones.element);
    this.children = [this.note, make("div", {class: "ring"}, this.picture, make("div", {}, this.legend, this.detail)), this.nodesTable, this.zonesTable];
  }

  /** @param {any} page */
  update(page) {
    const byZone = page.zones.length > 0;
    const {total, is_sample: isSample} = page.head.summary;
    setText(this.note, `${number(total)} nodes, ${number(page.links_total)} links. ` + (byZone ? "The network is too large to draw each node, so these are its zones."
      : "A node is at the angle of its id, beside its neighbours.") + (isSample ? " A sample, drawn by chance: links to other nodes are left out." : ""));
    this.nodesTable.hidden = byZone;
    this.zonesTable.hidden = !byZone;
    this.nodes.update(page.items, byZone ? 0 : total);
    this.zones.update(page.zones);
    const shown = JSON.stringify([page.items, page.links, page.zones, page.zone_links]);
    if (shown === this.shown) return;
    this.shown = shown;
    if (byZone) setText(this.detail, "");
    if (byZone) this.drawZones(page);
    else this.drawNodes(page);
  }

  /** Shows the picture with its names, or on narrow pages closer and without names. @param {boolean} isNarrow */
  frame(isNarrow) {
    const edge = isNarrow ? 72 : 0;
    this.picture.setAttribute("viewBox", `${edge} ${edge} ${SIZE - 2 * edge} ${SIZE - 2 * edge}`);
  }

  /** @param {any} page */
  drawNodes(page) {
    const {items, links} = page;
    const colours = coloursOf(items);
    const colour = item => item.zone ? colours.get(item.zone) : COLOURS;
    const size = items.length <= 100 ? 6 : items.length <= 250 ? 4.5 : 3;
    const spots = spotsOf(items, size);
    const path = chosen => chosen.map(([one, other]) => chord(spots[one], spots[other])).join("");
    const near = draw("path", {class: "ring-near", d: ""});
    const strength = links.length <= 100 ? "" : links.length <= 600 ? " is-many" : " is-most";
    const point = index => {
      this.pointed = items[index]?.id ?? "";
      near.setAttribute("d", path(links.filter(link => link.includes(index))));
      setText(this.detail, index < 0 ? HINT : textOf(items[index]));
    };
    point(items.findIndex(item => item.id === this.pointed));
    const dots = items.map((item, index) => {
      const [x, y] = at(...spots[index]);
      const silent = item.state === "missing" || item.state === "refused" ? " is-silent" : "";
      const dot = draw("g", {class: `ring-node zone-${colour(item)}${silent}`}, draw("title", {}, textOf(item)), draw("circle", {cx: x, cy: y, r: size}));
      dot.addEventListener("pointerenter", () => point(index));
      dot.addEventListener("pointerleave", () => point(-1));
      dot.addEventListener("click", () => { location.hash = linkTo("node", item.id); });
      return dot;
    });
    const names = items.length > NAMED_MAX ? [] : items.map((item, index) => nameBeside(item, spots[index], size));
    this.picture.setAttribute("aria-label", `The ring of ${items.length} nodes with ${links.length} links; the table below has the same`);
    this.picture.replaceChildren(draw("circle", {class: "ring-line", cx: CENTRE, cy: CENTRE, r: RADIUS}),
      draw("path", {class: `ring-links${strength}`, d: path(links)}), near, ...dots, ...names);
    this.drawLegend([...colours].map(([zone, index]) => [index, zone, items.filter(item => item.zone === zone).length]),
      items.filter(item => !item.zone).length, items.filter(item => item.state === "missing" || item.state === "refused").length);
  }

  /** @param {any} page */
  drawZones(page) {
    const {zones, zone_links: links} = page;
    const places = zones.map((_zone, index) => /** @type {[number, number]} */ ([2 * Math.PI * index / zones.length, ZONES_RADIUS]));
    const room = Math.min(44, ZONES_RADIUS * Math.sin(Math.PI / Math.max(2, zones.length)));
    const largest = Math.max(1, ...zones.map(zone => zone.nodes)), most = Math.max(1, ...links.map(link => link[2]));
    const chords = links.map(([one, other, count]) => draw("path", {class: "ring-between", d: chord(places[one], places[other]),
      "stroke-width": (1 + 9 * Math.sqrt(count / most)).toFixed(1)}, draw("title", {}, `${zones[one].zone || "no zone"} - ${zones[other].zone || "no zone"}: ${number(count)} links`)));
    const dots = zones.map((zone, index) => {
      const [x, y] = at(...places[index]);
      return draw("g", {class: `ring-node zone-${zone.zone ? Math.min(index, COLOURS) : COLOURS}`},
        draw("title", {}, `${zone.zone || "no zone"}: ${number(zone.nodes)} nodes, ${number(zone.links)} links among them`),
        draw("circle", {cx: x, cy: y, r: Math.max(3, room * Math.sqrt(zone.nodes / largest))}));
    });
    this.picture.setAttribute("aria-label", `${zones.length} zones and the links between them; the table below has the zones`);
    this.picture.replaceChildren(...chords, ...dots);
    this.drawLegend(zones.filter(zone => zone.zone).map((zone, index) => [Math.min(index, COLOURS), zone.zone, zone.nodes]),
      zones.find(zone => !zone.zone)?.nodes ?? 0, 0);
  }

  /** @param {any[][]} zones @param {number} nowhere nodes without a zone @param {number} silent */
  drawLegend(zones, nowhere, silent) {
    const rows = zones.slice(0, COLOURS).map(([index, zone, count]) => [`zone-${index}`, `${zone}: ${count}`]);
    const others = zones.slice(COLOURS);
    if (others.length) rows.push([`zone-${COLOURS}`, `${others.length} other zones: ${others.reduce((total, [, , count]) => total + count, 0)}`]);
    if (nowhere) rows.push([`zone-${COLOURS}`, `no zone: ${nowhere}`]);
    if (silent) rows.push(["is-silent", `without an answer: ${silent}`]);
    this.legend.replaceChildren(...rows.map(([kind, text]) => make("li", {}, make("i", {class: `dot ${kind}`}), text)));
  }
}

/** The angle and the distance of each node; near nodes stand in rows outwards. @param {{id: string}[]} items in the order of ids @param {number} size */
function spotsOf(items, size) {
  const ends = new Array(ROWS).fill(-Infinity);
  return items.map(({id}) => {
    const angle = angleOf(id), step = 2 * size + 1;
    const free = ends.findIndex(end => (angle - end) * RADIUS >= step);
    const row = free < 0 ? ROWS - 1 : free;
    ends[row] = angle;
    return /** @type {[number, number]} */ ([angle, RADIUS + row * step]);
  });
}

/** @param {any} item @param {[number, number]} spot @param {number} size */
function nameBeside(item, [angle, radius], size) {
  const [x, y] = at(angle, radius + size + 5);
  const isLeft = angle > Math.PI;
  const text = nodeText(item.id, item.name);
  return draw("text", {x, y, class: "ring-name", "text-anchor": isLeft ? "end" : "start", "dominant-baseline": "central",
    transform: `rotate(${(angle * 180 / Math.PI + (isLeft ? 90 : -90)).toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)})`},
  text.length > 14 ? `${text.slice(0, 13)}\u2026` : text);
}

/** @param {any} item */
function textOf(item) {
  return [nodeText(item.id, item.name), item.address, item.zone && `zone ${item.zone}`, `${item.links} links`, STATES[item.state]].filter(Boolean).join(", ");
}
