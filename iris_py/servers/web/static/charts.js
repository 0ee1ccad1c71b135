// The charts of the last 15 minutes, each with a table for readers who do not see it.

import {make, setText} from "./elements.js";
import {clock, duration, number} from "./format.js";

const POINTS_MAX = 900;
const FIELDS = ["unix_s", "requests", "failed", "errors", "messages", "dropped", "p50", "p99"];

/** @type {{title: string, series: [string, string][], text: (value: number | null) => string}[]} */
const CHARTS = [
  {title: "Requests a second", series: [["requests", "executed"], ["failed", "failed"], ["errors", "errors of callers"]], text: number},
  {title: "Time of handlers", series: [["p50", "median"], ["p99", "99 %"]], text: duration},
  {title: "Messages a second", series: [["messages", "delivered"], ["dropped", "dropped"]], text: number},
];

class Chart {
  /** @param {typeof CHARTS[number]} kind @param {Charts} charts */
  constructor(kind, charts) {
    this.kind = kind;
    this.charts = charts;
    this.plot = null;
    this.place = make("div", {class: "plot", "aria-hidden": "true"});
    this.values = kind.series.map(() => make("b"));
    this.rows = make("tbody");
    const legend = make("ul", {class: "legend"}, ...kind.series.map(([, title], index) =>
      make("li", {}, make("i", {class: `series-${index + 1}`}), `${title} `, this.values[index])));
    const head = make("tr", {}, make("th", {scope: "col"}, "time"), ...kind.series.map(([, title]) => make("th", {scope: "col"}, title)));
    this.details = make("details", {ontoggle: () => this.draw()}, make("summary", {}, "As a table"),
      make("div", {class: "wide"}, make("table", {}, make("caption", {}, `${kind.title}, the last minute`), make("thead", {}, head), this.rows)));
    this.element = make("figure", {class: "chart"}, make("figcaption", {}, kind.title), this.place, legend, this.details);
  }

  draw() {
    const {columns} = this.charts;
    const data = [columns.unix_s, ...this.kind.series.map(([field]) => columns[field])];
    const width = this.place.clientWidth;
    if (width && window.uPlot) {
      const colours = this.charts.colours();
      if (this.plot && this.colours !== colours.join()) { this.plot.destroy(); this.plot = null; }
      this.colours = colours.join();
      if (!this.plot) this.plot = new window.uPlot(this.options(width, colours), data, this.place);
      else { if (this.plot.width !== width) this.plot.setSize({width, height: 160}); this.plot.setData(data); }
    }
    this.values.forEach((value, index) => setText(value, this.kind.text(data[index + 1].at(-1) ?? null)));
    if (/** @type {HTMLDetailsElement} */ (this.details).open) this.fillTable(data);
  }

  /** @param {number} width @param {string[]} colours */
  options(width, colours) {
    const [text, grid, ...lines] = colours;
    const axis = {stroke: text, grid: {stroke: grid, width: 1}, ticks: {stroke: grid, width: 1}};
    return {
      width, height: 160,
      legend: {show: false},
      cursor: {show: false},
      scales: {y: {range: (_plot, _low, high) => [0, high > 0 ? high * 1.05 : 1]}},
      axes: [
        {...axis, values: (_plot, ticks) => ticks.map(clock), space: 90},
        {...axis, size: 64, values: (_plot, ticks) => ticks.map(this.kind.text)},
      ],
      series: [{}, ...this.kind.series.map((_series, index) => ({stroke: lines[index], width: 2, points: {show: false}}))],
    };
  }

  /** @param {(number | null)[][]} data */
  fillTable(data) {
    const rows = [];
    for (let index = Math.max(0, data[0].length - 60); index < data[0].length; index += 10) {
      rows.push(make("tr", {}, make("th", {scope: "row"}, clock(data[0][index] ?? 0)),
        ...data.slice(1).map(column => make("td", {class: "number"}, this.kind.text(column[index])))));
    }
    this.rows.replaceChildren(...rows);
  }
}

export class Charts {
  constructor() {
    /** @type {Record<string, (number | null)[]>} */
    this.columns = Object.fromEntries(FIELDS.map(field => [field, []]));
    this.charts = CHARTS.map(kind => new Chart(kind, this));
    this.element = make("section", {class: "charts", "aria-label": "The last 15 minutes"}, ...this.charts.map(chart => chart.element));
  }

  /** The totals that the door has read. @param {(number | null)[][]} points */
  start(points) {
    FIELDS.forEach((field, index) => { this.columns[field] = points.map(point => point[index]); });
  }

  /** @param {number} unixS @param {any} totals */
  add(unixS, totals) {
    const last = this.columns.unix_s.at(-1) ?? 0;
    if (unixS <= last) return;
    const point = [unixS, totals.requests_per_s.total, totals.failed_per_s.total, totals.errors_per_s.total,
      totals.messages_per_s.total, totals.dropped_per_s.total, totals.p50_s, totals.p99_s];
    FIELDS.forEach((field, index) => {
      this.columns[field].push(point[index]);
      if (this.columns[field].length > POINTS_MAX) this.columns[field].shift();
    });
  }

  draw() {
    for (const chart of this.charts) chart.draw();
  }

  /** The colours of text, grid and lines, which follow the scheme of the page. */
  colours() {
    const style = getComputedStyle(document.documentElement);
    return ["--text", "--line", "--chart-1", "--chart-2", "--chart-3"].map(name => style.getPropertyValue(name).trim());
  }
}
