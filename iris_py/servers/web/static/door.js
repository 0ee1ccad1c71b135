// The page of the door itself: connections, clients, operations, problems and histories.

import {make} from "./elements.js";
import {bytes, duration, number} from "./format.js";
import {linkTo, nodeText, Tiles} from "./parts.js";
import {Table} from "./table.js";

/** A table of counters. @param {string} label @param {string} title @param {string} empty @param {boolean} isBad whether a growing counter is marked */
const countsTable = (label, title, empty, isBad) => new Table(label, [
  {title, text: item => item.name},
  {title: "since the start", text: item => number(item.count), sort: item => item.count, isNumber: true},
  {title: "now, 1/s", text: item => item.per_s === null ? "" : number(item.per_s), sort: item => item.per_s, isNumber: true},
], {key: item => item.name, empty, sort: 1, isDescending: true, isBad: item => isBad && item.per_s > 0});

export class Door {
  constructor() {
    this.tiles = new Tiles();
    this.mounted = make("p", {class: "fine", hidden: true}, "This door is mounted into another web server, which has the connections.");
    this.operations = countsTable("Operations of clients", "operation", "No client has asked for anything.", false);
    this.problems = countsTable("Problems told to clients", "problem", "No client was refused.", true);
    this.refused = countsTable("Connections refused or ended", "reason", "No connection was refused or ended.", true);
    this.clients = new Table("Clients with event streams", [
      {title: "client", text: item => item.subject},
      {title: "streams", text: item => number(item.streams), sort: item => item.streams, isNumber: true},
      {title: "waiting messages", text: item => number(item.waiting_messages), sort: item => item.waiting_messages, isNumber: true},
      {title: "bytes", text: item => bytes(item.waiting_bytes), sort: item => item.waiting_bytes, isNumber: true},
      {title: "dropped", text: item => number(item.dropped), sort: item => item.dropped, isNumber: true},
    ], {key: item => item.subject, isBad: item => item.is_late || item.dropped > 0, empty: "No client follows topics.", sort: 3, isDescending: true});
    this.doors = new Table("Other doors", [
      {title: "address", text: item => item.address || "mounted"},
      {title: "kind", text: item => item.kind},
      {title: "node", text: item => nodeText(item.node, item.name), link: item => linkTo("node", item.node)},
      {title: "state", text: item => item.is_draining ? "closes" : "open"},
      {title: "version", text: item => item.version},
    ], {key: item => item.node + item.kind + item.address, empty: "This is the only door of the network."});
    this.histories = new Table("Histories", [
      {title: "pattern", text: item => item.pattern},
      {title: "messages", text: item => `${number(item.messages)} of ${number(item.messages_max)}`, sort: item => item.messages, isNumber: true},
      {title: "bytes", text: item => `${bytes(item.bytes)} of ${bytes(item.bytes_max)}`, sort: item => item.bytes, isNumber: true},
      {title: "oldest", text: item => item.oldest_s === null ? "none" : `${duration(item.oldest_s)} of ${duration(item.seconds_max)}`, sort: item => item.oldest_s, isNumber: true},
      {title: "last of topics", text: item => number(item.topics), sort: item => item.topics, isNumber: true},
      {title: "repetitions", text: item => number(item.repeated), sort: item => item.repeated, isNumber: true},
    ], {key: item => item.pattern, empty: "The file of the door names no history."});
    const block = (title, table) => make("section", {}, make("h2", {}, title), table.element);
    this.clientsTitle = make("h2", {}, "Clients with event streams");
    this.refusedTable = block("Connections refused or ended", this.refused);
    this.children = [this.tiles.element, this.mounted, this.clientsTitle, this.clients.element,
      make("div", {class: "columns"}, block("Operations of clients", this.operations), block("Problems told to clients", this.problems),
        this.refusedTable),
      make("h2", {}, "Histories"), this.histories.element, make("h2", {}, "Other doors"), this.doors.element];
  }

  /** @param {any} page */
  update(page) {
    const door = page.door;
    this.mounted.hidden = door.connections !== null;
    this.refusedTable.hidden = door.connections === null;
    if (door.connections !== null) this.tiles.set("connections", number(door.connections));
    this.tiles.set("event streams", number(door.streams));
    this.tiles.set("their clients", number(page.clients_total));
    this.tiles.set("patterns", number(door.patterns));
    this.tiles.set("viewers", number(door.viewers));
    this.tiles.set("messages in/s", number(page.received_per_s) || "-");
    this.tiles.set("bytes out/s", bytes(page.sent_per_s) || "-");
    this.tiles.set("dropped/s", number(page.dropped_per_s) || "-", page.dropped_per_s > 0);
    this.tiles.set("dropped", number(door.dropped_messages));
    this.tiles.set("streams ended", number(Object.values(door.streams_ended).reduce((total, count) => total + count, 0)));
    this.clients.update(page.clients, page.clients_total);
    this.operations.update(page.operations);
    this.problems.update(page.problems);
    this.refused.update(page.refused);
    this.tiles.set("revoked tokens", number(door.revocations));
    this.doors.update(page.doors, door.others);
    this.histories.update(page.items, page.head.summary.total);
  }
}
