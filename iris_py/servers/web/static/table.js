// A table that is updated in place: sorted by a click on a column, filtered by a text, 200 rows at most.

import {fill, make, setText} from "./elements.js";

const ROWS_MAX = 200;

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {(item: any) => string} text
 * @property {(item: any) => string | number | null} [sort] by default the text
 * @property {(item: any) => string} [link] the page of the object
 * @property {boolean} [isNumber]
 */

export class Table {
  /**
   * @param {string} label
   * @param {Column[]} columns
   * @param {{key: (item: any) => string, isBad?: (item: any) => boolean, empty: string, sort?: number, isDescending?: boolean}} options
   */
  constructor(label, columns, options) {
    this.columns = columns;
    this.options = options;
    this.items = [];
    this.sorted = options.sort ?? -1;
    this.isDescending = options.isDescending ?? false;
    this.rows = new Map();
    this.filter = /** @type {HTMLInputElement} */ (
      make("input", {type: "search", placeholder: "Filter", "aria-label": `Filter: ${label}`, oninput: () => this.draw()})
    );
    this.count = make("span", {class: "fine", role: "status"});
    this.heads = columns.map((column, index) => make("th", {scope: "col", class: column.isNumber ? "number" : ""},
      make("button", {type: "button", onclick: () => this.sortBy(index)}, column.title)));
    this.body = make("tbody");
    this.table = make("table", {"aria-label": label}, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
    this.nothing = make("p", {class: "fine"}, options.empty);
    this.element = make("div", {}, make("div", {class: "filter"}, this.filter, this.count),
      make("div", {class: "wide", tabindex: "0", role: "region", "aria-label": label}, this.table), this.nothing);
  }

  /** @param {any[]} items @param {number} [total] */
  update(items, total = items.length) {
    this.items = items;
    this.total = total;
    this.draw();
  }

  /** @param {number} index */
  sortBy(index) {
    this.isDescending = this.sorted === index ? !this.isDescending : Boolean(this.columns[index].isNumber);
    this.sorted = index;
    this.draw();
  }

  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    let found = this.items;
    if (wanted) found = found.filter(item => this.columns.some(column => column.text(item).toLowerCase().includes(wanted)));
    if (this.sorted >= 0) found = [...found].sort((one, other) => this.compare(one, other));
    this.heads.forEach((head, index) => {
      if (index === this.sorted) head.setAttribute("aria-sort", this.isDescending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const shown = found.slice(0, ROWS_MAX);
    const rows = new Map();
    for (const item of shown) {
      const key = this.options.key(item);
      const row = this.rows.get(key) ?? this.makeRow();
      this.fillRow(row, item);
      rows.set(key, row);
    }
    this.rows = rows;
    fill(this.body, ...rows.values());
    this.table.hidden = !this.items.length;
    this.filter.hidden = this.items.length < 8 && !wanted;
    this.nothing.hidden = Boolean(this.items.length);
    const total = Math.max(this.total ?? 0, this.items.length);
    setText(this.count, shown.length < total ? `${shown.length} of ${total}` : "");
  }

  /** @param {any} one @param {any} other */
  compare(one, other) {
    const column = this.columns[this.sorted];
    const [first, second] = [one, other].map(item => (column.sort ?? column.text)(item));
    if (first === second) return 0;
    if (first === null || first === "") return 1;
    if (second === null || second === "") return -1;
    return (first < second ? -1 : 1) * (this.isDescending ? -1 : 1);
  }

  makeRow() {
    return make("tr", {}, ...this.columns.map(column => {
      const cell = make("td", {class: column.isNumber ? "number" : "name"});
      if (column.link) cell.append(make("a"));
      return cell;
    }));
  }

  /** @param {HTMLElement} row @param {any} item */
  fillRow(row, item) {
    this.columns.forEach((column, index) => {
      const cell = /** @type {HTMLElement} */ (row.children[index]);
      const text = column.text(item);
      const link = column.link ? /** @type {HTMLAnchorElement} */ (cell.firstElementChild) : null;
      setText(link ?? cell, text);
      if (!column.isNumber && cell.title !== text) cell.title = text;
      if (link && column.link) {
        const target = column.link(item);
        if (link.getAttribute("href") !== target) link.setAttribute("href", target);
      }
    });
    row.classList.toggle("is-bad", Boolean(this.options.isBad?.(item)));
  }
}
