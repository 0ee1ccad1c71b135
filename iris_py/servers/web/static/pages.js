// The pages: each shows what one answer of the door says.

import {Charts} from "./charts.js";
import {Clouds} from "./clouds.js";
import {Door} from "./door.js";
import {fill, make, setText} from "./elements.js";
import {Findings} from "./findings.js";
import {bytes, clock, duration, estimated, number, shortId} from "./format.js";
import {Faults, linkTo, nodeText, Tiles} from "./parts.js";
import {Ring} from "./ring.js";
import {Table} from "./table.js";
import {Tail} from "./tail.js";

/** The pages with their titles, in the order of the navigation. */
export const TITLES = {
  overview: "Overview", clusters: "Clusters", topics: "Topics", nodes: "Nodes", links: "Links", ring: "Ring", clouds: "Clouds",
  events: "Events", findings: "Findings", door: "Door",
};

/** The last events on the overview. */
const EVENTS_SHOWN = 12;

const charts = new Charts();

/** @param {(number | null)[][]} points */
export function startCharts(points) {
  charts.start(points);
}

const clustersTable = () => new Table("Clusters", [
  {title: "cluster", text: line => line.name, link: line => linkTo("cluster", line.name)},
  {title: "members", text: line => line.is_unserved ? "none" : number(line.members), sort: line => line.members, isNumber: true},
  {title: "requests/s", text: line => number(line.requests_per_s), sort: line => line.requests_per_s, isNumber: true},
  {title: "failed/s", text: line => number(line.failed_per_s), sort: line => line.failed_per_s, isNumber: true},
  {title: "errors/s", text: line => number(line.errors_per_s) + (line.error ? ` ${line.error}` : ""), sort: line => line.errors_per_s, isNumber: true},
  {title: "running", text: line => number(line.running), sort: line => line.running, isNumber: true},
  {title: "queued", text: line => number(line.queued), sort: line => line.queued, isNumber: true},
  {title: "p99", text: line => duration(line.p99_s), sort: line => line.p99_s, isNumber: true},
], {key: line => line.name, isBad: line => line.is_unserved || line.failed_per_s > 0 || line.errors_per_s > 0,
  empty: "No cluster is served or used.", sort: 2, isDescending: true});

/** @param {() => Record<string, string>} names the labels of nodes, by id */
const eventsTable = names => new Table("Events", [
  {title: "time", text: event => clock(event.unix_s), sort: event => event.unix_s},
  {title: "event", text: event => event.kind},
  {title: "about", text: event => event.name || (event.node && nodeText(event.node, names()[event.node]))},
  {title: "detail", text: event => event.detail},
  {title: "times", text: event => number(event.times), sort: event => event.times, isNumber: true},
  {title: "reported by", text: event => nodeText(event.teller, names()[event.teller]), link: event => linkTo("node", event.teller)},
], {key: event => `${event.teller}${event.number}`, empty: "No event was reported.", sort: 0, isDescending: true});

class Overview {
  constructor() {
    this.names = {};
    this.tiles = new Tiles();
    this.findings = new Faults();
    this.clusters = clustersTable();
    this.events = eventsTable(() => this.names);
    this.children = [this.findings.element, this.tiles.element, charts.element, make("h2", {}, "Clusters"), this.clusters.element,
      make("h2", {}, "Last events"), this.events.element, make("p", {}, make("a", {href: linkTo("events")}, "All events"))];
  }

  /** @param {any} page */
  update(page) {
    const totals = page.totals;
    this.tiles.set("nodes", estimated(totals.nodes));
    this.tiles.set("requests/s", estimated(totals.requests_per_s));
    this.tiles.set("failed/s", estimated(totals.failed_per_s), totals.failed_per_s.total > 0);
    this.tiles.set("errors/s", estimated(totals.errors_per_s), totals.errors_per_s.total > 0);
    this.tiles.set("p50", duration(totals.p50_s) || "-");
    this.tiles.set("p99", duration(totals.p99_s) || "-");
    this.tiles.set("messages/s", estimated(totals.messages_per_s));
    this.tiles.set("dropped/s", estimated(totals.dropped_per_s), totals.dropped_per_s.total > 0);
    this.tiles.set("queued", estimated(totals.queued));
    this.tiles.set("links", estimated(totals.links));
    this.tiles.set("processors", estimated(totals.cpu));
    this.tiles.set("memory", bytes(totals.resident_bytes.total));
    this.findings.update(page.findings);
    charts.add(page.head.unix_s, totals);
    charts.draw();
    this.clusters.update(page.clusters, page.head.summary.total);
    this.names = page.names;
    this.events.update(page.events.slice(0, EVENTS_SHOWN));
  }
}

class Clusters {
  constructor() {
    this.table = clustersTable();
    this.children = [this.table.element];
  }

  /** @param {any} page */
  update(page) {
    this.table.update(page.items, page.head.summary.total);
  }
}

class Cluster {
  constructor() {
    this.tiles = new Tiles();
    this.findings = new Faults();
    this.members = new Table("Members", [
      {title: "member", text: line => line.name || shortId(line.id), link: line => linkTo("node", line.id)},
      {title: "address", text: line => line.address},
      {title: "zone", text: line => line.zone},
      {title: "queued", text: line => number(line.queued), sort: line => line.queued, isNumber: true},
      {title: "running", text: line => `${line.running}/${line.concurrency}`, sort: line => line.running, isNumber: true},
      {title: "requests/s", text: line => number(line.requests_per_s), sort: line => line.requests_per_s, isNumber: true},
      {title: "p99", text: line => duration(line.p99_s), sort: line => line.p99_s, isNumber: true},
      {title: "failed", text: line => number(line.failed), sort: line => line.failed, isNumber: true},
      {title: "rejected", text: line => number(line.rejected), sort: line => line.rejected, isNumber: true},
      {title: "weight", text: line => number(line.weight), sort: line => line.weight, isNumber: true},
    ], {key: line => line.id, isBad: line => this.slow?.has(line.id) ?? false, empty: "No node that answered serves this cluster."});
    this.children = [this.findings.element, this.tiles.element, make("h2", {}, "Members"), this.members.element];
  }

  /** @param {any} page */
  update(page) {
    const line = page.cluster;
    this.slow = new Set(page.slow.map(each => each.id));
    this.findings.update(page.findings);
    this.tiles.set("members", line ? number(line.members) : "0", !line || line.is_unserved);
    this.tiles.set("requests/s", line ? number(line.requests_per_s) : "-");
    this.tiles.set("failed/s", line ? number(line.failed_per_s) : "-", Boolean(line?.failed_per_s));
    this.tiles.set("errors/s", line ? number(line.errors_per_s) : "-", Boolean(line?.errors_per_s));
    this.tiles.set("queued", line ? number(line.queued) : "-");
    this.tiles.set("p99", line ? duration(line.p99_s) || "-" : "-");
    this.members.update(page.items, page.head.summary.total);
  }
}

class Topics {
  constructor() {
    this.notes = make("p", {class: "fine"});
    this.patterns = new Table("Subscribed patterns", [
      {title: "pattern", text: line => line.pattern, link: line => linkTo("topic", line.pattern)},
      {title: "subscriptions", text: line => number(line.subscriptions), sort: line => line.subscriptions, isNumber: true},
      {title: "messages/s", text: line => number(line.delivered_per_s), sort: line => line.delivered_per_s, isNumber: true},
      {title: "dropped", text: line => number(line.dropped), sort: line => line.dropped, isNumber: true},
      {title: "queued", text: line => number(line.queued), sort: line => line.queued, isNumber: true},
      {title: "oldest", text: line => line.oldest_s ? duration(line.oldest_s) : "", sort: line => line.oldest_s, isNumber: true},
    ], {key: line => line.pattern, empty: "Nobody subscribes to a topic.", sort: 2, isDescending: true});
    this.tokens = new Table("First tokens of topics", [
      {title: "first token", text: line => line.token},
      {title: "published/s", text: line => number(line.published_per_s), sort: line => line.published_per_s, isNumber: true},
      {title: "received/s", text: line => number(line.received_per_s), sort: line => line.received_per_s, isNumber: true},
      {title: "missed", text: line => number(line.gaps), sort: line => line.gaps, isNumber: true},
    ], {key: line => line.token, empty: "Nobody publishes."});
    this.children = [this.notes, make("h2", {}, "Subscribed patterns"), this.patterns.element,
      make("h2", {}, "First tokens of topics"), this.tokens.element];
  }

  /** @param {any} page */
  update(page) {
    setText(this.notes, `The table of subscriptions: ${page.notes.join("; ")}.`);
    this.patterns.update(page.items, page.head.summary.total);
    this.tokens.update(page.tokens);
  }
}

class Topic {
  /** @param {string} pattern */
  constructor(pattern) {
    this.tail = new Tail(pattern);
    this.tiles = new Tiles();
    this.table = new Table("Subscriptions", [
      {title: "node", text: item => nodeText(item.node, item.name), link: item => linkTo("node", item.node)},
      {title: "address", text: item => item.address},
      {title: "zone", text: item => item.zone},
      {title: "messages/s", text: item => number(item.messages_per_s), sort: item => item.messages_per_s, isNumber: true},
      {title: "queued", text: item => number(item.queued), sort: item => item.queued, isNumber: true},
      {title: "dropped", text: item => number(item.dropped), sort: item => item.dropped, isNumber: true},
    ], {key: item => item.node, isBad: item => item.dropped > 0, empty: "No node that answered subscribes to this pattern."});
    this.children = [this.tiles.element, make("h2", {}, "Subscriptions"), this.table.element, this.tail.element];
  }

  leave() {
    this.tail.stop();
  }

  /** @param {any} page */
  update(page) {
    const line = page.topic;
    this.tiles.set("subscriptions", line ? number(line.subscriptions) : "0");
    this.tiles.set("messages/s", line ? number(line.delivered_per_s) : "-");
    this.tiles.set("dropped", line ? number(line.dropped) : "-", Boolean(line?.dropped));
    this.tiles.set("queued", line ? number(line.queued) : "-");
    this.table.update(page.items, page.head.summary.total);
  }
}

class Nodes {
  constructor() {
    this.table = new Table("Nodes", [
      {title: "node", text: item => item.name || shortId(item.id), link: item => linkTo("node", item.id)},
      {title: "address", text: item => item.address},
      {title: "zone", text: item => item.zone},
      {title: "state", text: item => item.state},
      {title: "requests/s", text: item => number(item.requests_per_s), sort: item => item.requests_per_s, isNumber: true},
      {title: "queued", text: item => number(item.queued), sort: item => item.queued, isNumber: true},
      {title: "dropped/s", text: item => number(item.dropped_per_s), sort: item => item.dropped_per_s, isNumber: true},
      {title: "cpu", text: item => number(item.cpu), sort: item => item.cpu, isNumber: true},
      {title: "memory", text: item => bytes(item.resident_bytes), sort: item => item.resident_bytes, isNumber: true},
      {title: "late", text: item => duration(item.lateness_s), sort: item => item.lateness_s, isNumber: true},
      {title: "links", text: item => number(item.links), sort: item => item.links, isNumber: true},
      {title: "uptime", text: item => duration(item.uptime_s), sort: item => item.uptime_s, isNumber: true},
      {title: "version", text: item => item.version.replace(/(\+\w{7})\w+$/, "$1")},
    ], {key: item => item.id, isBad: item => item.state !== "answers", empty: "No other node was found."});
    this.children = [this.table.element];
  }

  /** @param {any} page */
  update(page) {
    this.table.update(page.items, page.head.summary.total);
  }
}

class NodePage {
  constructor() {
    this.tiles = new Tiles();
    this.table = new Table("Figures", [
      {title: "figure", text: item => item.name},
      {title: "value", text: item => item.text, isNumber: true},
      {title: "change/s", text: item => item.change, isNumber: true},
    ], {key: item => item.name, empty: "This node has not answered."});
    this.children = [this.tiles.element, make("h2", {}, "All figures"), this.table.element];
  }

  /** @param {any} page */
  update(page) {
    const node = page.node;
    this.tiles.set("state", node ? node.state : "unknown", node?.state !== "answers");
    this.tiles.set("requests/s", node ? number(node.requests_per_s) : "-");
    this.tiles.set("processors", node ? number(node.cpu) : "-");
    this.tiles.set("memory", node ? bytes(node.resident_bytes) : "-");
    this.tiles.set("links", node ? number(node.links) : "-");
    this.tiles.set("uptime", node ? duration(node.uptime_s) : "-");
    this.table.update(page.items, page.head.summary.total);
  }
}

class Links {
  constructor() {
    this.table = new Table("Links", [
      {title: "node", text: item => nodeText(item.node, item.node_name), link: item => linkTo("node", item.node)},
      {title: "peer", text: item => nodeText(item.peer, item.peer_name), link: item => linkTo("node", item.peer)},
      {title: "address", text: item => item.address},
      {title: "state", text: item => item.is_congested ? "congested" : "open"},
      {title: "round trip", text: item => duration(item.round_trip_s), sort: item => item.round_trip_s, isNumber: true},
      {title: "sent/s", text: item => bytes(item.sent_per_s), sort: item => item.sent_per_s, isNumber: true},
      {title: "received/s", text: item => bytes(item.received_per_s), sort: item => item.received_per_s, isNumber: true},
    ], {key: item => item.node + item.peer, isBad: item => item.is_congested, empty: "No link was reported."});
    this.children = [this.table.element];
  }

  /** @param {any} page */
  update(page) {
    this.table.update(page.items, page.head.summary.total);
  }
}

class Events {
  constructor() {
    this.names = {};
    this.table = eventsTable(() => this.names);
    this.children = [this.table.element];
  }

  /** @param {any} page */
  update(page) {
    this.names = page.names;
    this.table.update(page.items, page.head.summary.total);
  }
}

const KINDS = {
  overview: Overview, clusters: Clusters, cluster: Cluster, topics: Topics, topic: Topic, nodes: Nodes, node: NodePage,
  links: Links, ring: Ring, clouds: Clouds, events: Events, findings: Findings, door: Door,
};

/** A page with its heading, or null. @param {string} kind @param {string} name */
export function makePage(kind, name) {
  const Page = Object.hasOwn(KINDS, kind) ? KINDS[kind] : null;
  if (!Page) return null;
  const page = new Page(name);
  const title = TITLES[kind] ?? `${kind === "cluster" ? "Cluster" : kind === "topic" ? "Topic" : "Node"} ${kind === "node" ? shortId(name) : name}`;
  const heading = make("h1", {}, title);
  return {
    title,
    show: main => fill(main, heading, ...page.children),
    leave: () => page.leave?.(),
    /** @param {any} content */
    update: content => {
      page.update(content);
      if (kind === "node" && content.node?.name) setText(heading, `Node ${content.node.name} (${shortId(name)})`);
    },
  };
}
