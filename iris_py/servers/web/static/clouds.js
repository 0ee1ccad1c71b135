// The page of the other clouds: the state of each, the gateways here, their cloud links, and the traffic of each rule.

import {make} from "./elements.js";
import {bytes, duration, number} from "./format.js";
import {Faults, linkTo, nodeText} from "./parts.js";
import {Table} from "./table.js";

const sum = counts => Object.values(counts).reduce((total, count) => total + count, 0);

/** The reasons and numbers of a map of counts. @param {Record<string, number>} counts */
const reasons = counts => Object.entries(counts).filter(([, count]) => count).map(([reason, count]) => `${number(count)} ${reason.replaceAll("_", " ")}`).join(", ");

/** The state of a cloud link. @param {any} link */
function stateOf(link) {
  if (link.error) return "down";
  return link.is_suspect ? "silent" : link.is_going ? "leaves" : "up";
}

export class Clouds {
  constructor() {
    this.names = {};
    const gateway = item => nodeText(item.gateway, this.names[item.gateway]);
    this.findings = new Faults();
    this.clouds = new Table("Clouds", [
      {title: "cloud", text: line => line.cloud},
      {title: "gateway", text: gateway, link: line => linkTo("node", line.gateway)},
      {title: "state", text: line => line.is_up ? "up" : "down"},
      {title: "links", text: line => number(line.lines), sort: line => line.lines, isNumber: true},
      {title: "round trip", text: line => duration(line.round_trip_s), sort: line => line.round_trip_s, isNumber: true},
      {title: "failed requests", text: line => reasons(line.failed)},
      {title: "trouble", text: line => line.trouble},
    ], {key: line => line.cloud + line.gateway, isBad: line => !line.is_up, empty: "No gateway connects this cloud to others."});
    this.gateways = new Table("Gateways", [
      {title: "gateway", text: line => nodeText(line.node, this.names[line.node]), link: line => linkTo("node", line.node)},
      {title: "cloud here", text: line => line.name},
      {title: "listens", text: line => line.listens || "only dials"},
      {title: "clouds up", text: line => `${Object.values(line.clouds).filter(cloud => cloud.is_up).length} of ${Object.keys(line.clouds).length}`,
        sort: line => Object.values(line.clouds).filter(cloud => cloud.is_up).length, isNumber: true},
      {title: "metrics", text: line => line.metrics || "none"},
      {title: "dropped", text: line => reasons(line.drops)},
      {title: "audit records lost", text: line => number(line.audit_unwritten), sort: line => line.audit_unwritten, isNumber: true},
    ], {key: line => line.node, isBad: line => line.audit_unwritten > 0, empty: "No gateway has answered."});
    this.links = new Table("Cloud links", [
      {title: "cloud", text: item => item.cloud},
      {title: "from", text: gateway, link: item => linkTo("node", item.gateway)},
      {title: "to", text: item => item.address},
      {title: "state", text: stateOf},
      {title: "connections", text: item => number(item.connections), sort: item => item.connections, isNumber: true},
      {title: "heard", text: item => item.heard_s_ago === undefined ? "" : `${duration(item.heard_s_ago)} ago`, sort: item => item.heard_s_ago ?? null, isNumber: true},
      {title: "round trip", text: item => duration(item.round_trip_s), sort: item => item.round_trip_s ?? null, isNumber: true},
      {title: "requests out", text: item => number(item.requests_out), sort: item => item.requests_out ?? null, isNumber: true},
      {title: "requests in", text: item => number(item.requests_in), sort: item => item.requests_in ?? null, isNumber: true},
      {title: "channels", text: item => number(item.channels), sort: item => item.channels ?? null, isNumber: true},
      {title: "error", text: item => item.error ?? ""},
    ], {key: item => item.cloud + item.gateway + item.address, isBad: item => stateOf(item) !== "up", empty: "No gateway has a cloud link."});
    this.rules = new Table("Rules", [
      {title: "cloud", text: item => item.cloud},
      {title: "direction", text: item => item.direction},
      {title: "kind", text: item => item.kind},
      {title: "names", text: item => item.pattern || "all others"},
      {title: "requests done", text: item => number(item.requests.done ?? 0), sort: item => item.requests.done ?? 0, isNumber: true},
      {title: "failed", text: item => number(failed(item)), sort: failed, isNumber: true},
      {title: "messages out", text: item => number(item.messages_sent), sort: item => item.messages_sent, isNumber: true},
      {title: "messages in", text: item => number(item.messages_received), sort: item => item.messages_received, isNumber: true},
      {title: "bytes out", text: item => bytes(item.payload_bytes_sent), sort: item => item.payload_bytes_sent, isNumber: true},
      {title: "bytes in", text: item => bytes(item.payload_bytes_received), sort: item => item.payload_bytes_received, isNumber: true},
      {title: "dropped", text: item => reasons(item.dropped)},
    ], {key: item => item.gateway + item.cloud + item.direction + item.kind + item.pattern,
      empty: "No rule has had traffic.", sort: 4, isDescending: true});
    this.details = make("div", {}, make("h2", {}, "Gateways here"), this.gateways.element, make("h2", {}, "Cloud links"), this.links.element,
      make("h2", {}, "Traffic by rule, since the start of the gateway"), this.rules.element);
    this.children = [this.findings.element, this.clouds.element, this.details];
  }

  /** @param {any} page */
  update(page) {
    this.names = page.names;
    this.findings.update(page.findings);
    this.clouds.update(page.items, page.head.summary.total);
    this.details.hidden = !page.gateways.length;
    this.gateways.update(page.gateways);
    const clouds = page.gateways.flatMap(line => Object.entries(line.clouds).map(([cloud, state]) => ({gateway: line.node, cloud, state})));
    this.links.update(clouds.flatMap(({gateway, cloud, state}) => [
      ...state.bundles.map(link => ({...link, cloud, gateway})),
      ...state.dials.filter(dial => dial.error && !dial.is_up).map(dial => ({cloud, gateway, address: dial.address, error: dial.error})),
    ]));
    this.rules.update(clouds.flatMap(({gateway, cloud, state}) => state.accounts.rules.map(rule => ({...rule, cloud, gateway}))));
  }
}

/** The requests of a rule that were not done. @param {any} rule */
function failed(rule) {
  return sum(rule.requests) - (rule.requests.done ?? 0);
}
