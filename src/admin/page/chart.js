// Charts over time, drawn by uPlot: options and colours for both colour schemes.

import { h } from "./dom.js";
import { amount, clock } from "./format.js";
import { cumulative, shownSpan } from "./series.js";

const COOL = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const WARM = ["--w1", "--w2", "--w3", "--w4", "--w5", "--w6", "--w7"];
const OWN = { shadow_refused: "--c7", redis: "--c1", cache: "--c4", local: "--w2", policy: "--w5", level: "--c1" };

/** A colour of the style sheet, for the canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Colours of the rows: fixed per name, cool for allowed and warm for refused. */
function palette(rows) {
  const names = [...new Set(rows.map((row) => row.name))];
  return rows.map(({ name, kind }) => {
    if (OWN[kind]) return OWN[kind];
    const hues = kind === "refused" ? WARM : COOL;
    return hues[names.indexOf(name) % hues.length];
  });
}

/** Axes with few, quiet lines. */
export function axes() {
  const quiet = { stroke: colour("--muted"), font: "12px system-ui, sans-serif" };
  const grid = { stroke: colour("--line"), width: 1 };
  const ticks = { show: false };
  return [
    { ...quiet, grid: { show: false }, ticks, space: 70, size: 28, gap: 6,
      values: (_, times, axis, space, step) => times.map((time) => clock(time * 1_000, step < 60)) },
    { ...quiet, grid, ticks, size: 46, gap: 6, space: 34, values: (_, values) => values.map(amount) },
  ];
}

/** A chart that fills its element and is redrawn when the colours or the rows change. */
export class Chart {
  #element;
  #options;
  #plot = null;
  #shape = "";
  #data = null;

  /** `options(width, height)` returns uPlot's options for each redraw. */
  constructor(element, options) {
    this.#element = element;
    this.#options = options;
    new ResizeObserver(() => this.#fit()).observe(element);
    window.addEventListener("themechange", () => this.#draw());
  }

  /** Shows `data`. A changed `shape` redraws the chart; otherwise only the values change. */
  show(data, shape = "") {
    this.#data = data;
    if (this.#plot && shape === this.#shape) {
      this.#plot.setData(data);
      return;
    }
    this.#shape = shape;
    this.#draw();
  }

  get plot() {
    return this.#plot;
  }

  #size() {
    return { width: Math.floor(this.#element.clientWidth), height: Math.floor(this.#element.clientHeight) };
  }

  #fit() {
    const size = this.#size();
    if (this.#plot && size.width > 0) this.#plot.setSize(size);
    else if (this.#data) this.#draw();
  }

  #draw() {
    const { width, height } = this.#size();
    if (!this.#data || width === 0) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(width, height), this.#data, this.#element);
  }
}

/** Stacked rows over the last minutes, with a table of their values as legend. */
export class Stacked {
  #chart;
  #legend;
  #element;
  #label;
  #rows = [];
  #times = [];
  #cursor = null;
  #words = {};

  /** `label` is the accessible name of the chart; `words` are the names of kinds in the legend. */
  constructor(element, legend, label, words = { allowed: "Allowed", refused: "Refused", shadow_refused: "Shadow refused" }) {
    this.#legend = legend;
    this.#element = element;
    this.#label = label;
    this.#words = words;
    this.#chart = new Chart(element, (width, height) => this.#options(width, height));
  }

  show({ times, rows }) {
    this.#times = times;
    this.#rows = rows;
    this.#chart.show([times, ...cumulative(rows)], JSON.stringify(rows.map(({ name, kind }) => [name, kind])));
    this.#updateLegend();
  }

  #options(width, height) {
    const colours = palette(this.#rows).map(colour);
    const series = this.#rows.map(({ name }, index) => ({
      label: name, stroke: colours[index], width: 1, fill: `${colours[index]}cc`, points: { show: false },
    }));
    const bands = this.#rows.slice(1).map((_, index) => ({ series: [index + 2, index + 1] }));
    return {
      width, height, bands, padding: [8, 8, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: { range: (_, min, max) => shownSpan(min, max) },
        y: { range: (_, min, max) => [0, Math.max(1, max * 1.08)] },
      },
      axes: axes(),
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.#point(plot.cursor.idx)] },
    };
  }

  #point(index) {
    if (index === this.#cursor) return;
    this.#cursor = index ?? null;
    this.#updateLegend();
  }

  /** Shows the values at the pointer, or the newest ones. */
  #updateLegend() {
    const index = this.#cursor ?? this.#times.length - 1;
    const value = (row) => amount(row?.values[index] ?? 0);
    const kinds = [...new Set(this.#rows.map((row) => row.kind))];
    const names = [...new Set(this.#rows.map((row) => row.name))];
    const colours = palette(this.#rows);
    const grouped = kinds.every((kind) => this.#words[kind]);
    const columns = grouped ? kinds : [null];
    const cell = (name, kind) => {
      const at = this.#rows.findIndex((row) => row.name === name && (kind === null || row.kind === kind));
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = `var(${colours[at]})`;
      return h("td", { class: "number" }, swatch, value(this.#rows[at]));
    };
    const when = this.#cursor === null ? "now" : clock(this.#times[index] * 1_000);
    const titles = grouped ? columns.map((kind) => `${this.#words[kind]}/s`) : ["Per second"];
    if (names.length === 0) {
      this.#legend.replaceChildren(h("p", { class: "empty" }, "Nothing in the last minutes."));
    } else {
      this.#legend.replaceChildren(h("table", { class: "legend" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, when),
          titles.map((title) => h("th", { scope: "col", class: "number" }, title)))),
        h("tbody", {}, names.map((name) =>
          h("tr", {}, h("th", { scope: "row" }, name || "no plan"), columns.map((kind) => cell(name, kind)))))));
    }
    this.#element.setAttribute("aria-label", `${this.#label}; the table below has the values`);
  }
}
