// A chart over the shown range with a table of its values: stacked areas, or lines.

import { fill, h, named } from "./dom.js";
import { amount, clock } from "./format.js";
import { Chart, colour, colourOf, overTime, palette } from "./chart.js";
import { cumulative } from "./series.js";
import { zoom } from "./range.js";

const sum = (rows, index) => rows.reduce((all, { values }) => all + (values[index] ?? 0), 0);

function swatch(name) {
  const element = h("span", { class: "swatch" });
  element.style.background = `var(${name})`;
  return element;
}

export class TimeChart {
  #chart;
  #legend;
  #settings;
  #rows = [];
  #lines = [];
  #times = [];
  #span = null;
  #cursor = null;

  /**
   * `label` is the accessible name of the chart, `value` formats its values. With `columns`, the titles of
   * the kinds, the table has a column for each kind; otherwise `word(row)` is the name of each row. `total`
   * adds the sums, `unit` says what the values are.
   */
  constructor(element, legend, settings) {
    this.#legend = legend;
    this.#settings = { value: amount, unit: "per second", stacks: true, total: settings.stacks !== false, ...settings };
    element.setAttribute("aria-label", `${settings.label}; the table below has the values`);
    this.#chart = new Chart(element, (width, height) => this.#options(width, height));
  }

  /** Shows `rows`, stacked, and `lines` in front of them. `span(min, max)` is the shown range in seconds. */
  show({ times, rows, lines = [] }, span) {
    [this.#times, this.#rows, this.#lines, this.#span] = [times, rows, lines, span];
    const values = this.#settings.stacks ? cumulative(rows) : rows.map((row) => row.values);
    const shape = [...rows, ...lines].map(({ name, kind }) => [name, kind]);
    this.#chart.show([times, ...values, ...lines.map((row) => row.values)], JSON.stringify(shape));
    this.#updateLegend();
  }

  #options(width, height) {
    const { stacks, value, top } = this.#settings;
    const colours = palette([...this.#rows, ...this.#lines]).map(colour);
    const area = (index) => ({ width: 0, fill: `${colours[index]}cc` });
    const series = [...this.#rows, ...this.#lines].map(({ name }, index) => ({
      label: name, stroke: colours[index], points: { show: false },
      ...(stacks && index < this.#rows.length ? area(index) : { width: 1.5, dash: index < this.#rows.length ? undefined : [5, 4] }),
    }));
    const bands = stacks ? this.#rows.slice(1).map((_, index) => ({ series: [index + 2, index + 1] })) : [];
    return {
      ...overTime({ width, height, zoom, value, top, span: (...ends) => this.#span(...ends), point: (index) => this.#point(index) }),
      bands, series: [{}, ...series],
    };
  }

  #point(index) {
    if (index === this.#cursor) return;
    this.#cursor = index ?? null;
    this.#updateLegend();
  }

  /** Shows the values at the pointer, or the newest ones. */
  #updateLegend() {
    const index = Math.min(this.#cursor ?? Infinity, this.#times.length - 1);
    if (index < 0) {
      fill(this.#legend, h("p", { class: "empty" }, "No samples in this range."));
      return;
    }
    const when = h("th", { scope: "col" }, h("time", {}, clock(this.#times[index] * 1_000)), h("span", { class: "hidden" }, `, ${this.#settings.unit}`));
    const { columns } = this.#settings;
    fill(this.#legend, h("table", { class: "legend" }, columns ? this.#matrix(when, index) : this.#list(when, index)));
  }

  #value(number) {
    return number === null || number === undefined ? "–" : this.#settings.value(number);
  }

  /** A row for each name, a column for each kind. A kind with one colour has it in its title. */
  #matrix(when, index) {
    const kinds = [...new Set(this.#rows.map((row) => row.kind))];
    const names = [...new Set(this.#rows.map((row) => row.name))];
    const colours = palette(this.#rows);
    const { columns, nameless } = this.#settings;
    const cell = (name, kind) => {
      const at = this.#rows.findIndex((row) => row.name === name && row.kind === kind);
      return h("td", { class: "number" }, !colourOf(kind) && swatch(colours[at]), this.#value(this.#rows[at]?.values[index]));
    };
    const title = (kind) => h("th", { scope: "col", class: "number" }, colourOf(kind) && swatch(colourOf(kind)), columns[kind]);
    const all = (kind) => h("td", { class: "number" }, this.#value(sum(this.#rows.filter((row) => row.kind === kind), index)));
    return [
      h("thead", {}, h("tr", {}, when, kinds.map(title))),
      h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, name ? named(name) : nameless), kinds.map((kind) => cell(name, kind))))),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "all"), kinds.map(all))),
    ];
  }

  /** A row for each series. */
  #list(when, index) {
    const colours = palette([...this.#rows, ...this.#lines]);
    const { word, total, unit } = this.#settings;
    const all = [...this.#rows, ...this.#lines];
    const line = (row) => h("tr", {}, h("th", { scope: "row" }, word(row)),
      h("td", { class: "number" }, swatch(colours[all.indexOf(row)]), this.#value(row.values[index])));
    return [
      h("thead", {}, h("tr", {}, when, h("th", { scope: "col", class: "number" }, unit))),
      h("tbody", {}, this.#rows.map(line)),
      (total || this.#lines.length > 0) && h("tfoot", {},
        total && h("tr", {}, h("th", { scope: "row" }, "all"), h("td", { class: "number" }, this.#value(sum(this.#rows, index)))),
        this.#lines.map(line)),
    ];
  }
}
