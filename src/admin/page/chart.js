// Charts over time, drawn by uPlot: options and colours for both colour schemes, and zoom by dragging.

import { amount, clock, date } from "./format.js";
import { civil } from "./zone.js";

const COOL = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const WARM = ["--w1", "--w2", "--w3", "--w4", "--w5", "--w6", "--w7"];
const OWN = {
  shadow_refused: "--c7", redis: "--c1", cache: "--c4", lease: "--c5", local: "--w2", policy: "--w5", level: "--c1",
  unavailable: "--k1", unauthorized: "--k2", rejected: "--k3",
  "1xx": "--c6", "2xx": "--c1", "3xx": "--c2", "4xx": "--w2", "5xx": "--w1", none: "--k3", p50: "--c1", p99: "--w2",
};

/** A drag over fewer pixels is a click. */
const DRAG_PX = 6;

/** Room at the right for half of the last label of the time axis. */
export const RIGHT_PX = 32;

/** A date whose local clock is that of the shown zone: uPlot chooses round times by it. */
export function inZone(seconds) {
  const [year, month, day, hour, minute, second] = civil(seconds * 1_000);
  return new Date(year, month - 1, day, hour, minute, second, Math.round(seconds * 1_000) % 1_000);
}

/** A colour of the style sheet, for the canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The colour that all rows of a kind have; `undefined` if it differs by name. */
export const colourOf = (kind) => OWN[kind];

/** Colours of the rows: fixed per name, cool for allowed, warm for refused and failed. */
export function palette(rows) {
  const names = [...new Set(rows.map((row) => row.name))];
  return rows.map(({ name, kind }) => {
    if (OWN[kind]) return OWN[kind];
    const hues = kind === "allowed" ? COOL : WARM;
    // "No answer" of a name differs from its 5xx.
    return hues[(names.indexOf(name) + (kind === "failures" ? 3 : 0)) % hues.length];
  });
}

/** The label of a time on an axis whose labels are `step` seconds apart. */
function timeLabel(seconds, step) {
  const ms = seconds * 1_000;
  const [, , , hour, minute] = civil(ms);
  return step >= 86_400 || (step >= 600 && hour === 0 && minute === 0) ? date(ms) : clock(ms, step < 60);
}

/** Room for a label with and without seconds. */
const LABEL_PX = 70;
const SHORT_LABEL_PX = 46;

/** Least distance of labels: less where they are whole minutes. */
function labelSpace(plot, axis, min, max, width) {
  const minute = (width * 60) / (max - min);
  return minute >= SHORT_LABEL_PX ? Math.min(LABEL_PX, minute) : LABEL_PX;
}

/** Axes with few, quiet lines. `value` formats the labels at the left. */
export function axes(value = amount) {
  const quiet = { stroke: colour("--muted"), font: "12px system-ui, sans-serif" };
  const grid = { stroke: colour("--line"), width: 1 };
  const ticks = { show: false };
  return [
    { ...quiet, grid: { show: false }, ticks, space: labelSpace, size: 28, gap: 6,
      values: (_, times, axis, space, step) => times.map((time) => timeLabel(time, step)) },
    { ...quiet, grid, ticks, size: 50, gap: 6, space: 34, values: (_, values) => values.map((number) => value(number)) },
  ];
}

/** Options that all charts over time share. `span()` is the shown range in seconds, `top` the least height. */
export function overTime({ width, height, span, zoom, point, value, top = 1 }) {
  return {
    width, height, padding: [8, RIGHT_PX, 0, 0], legend: { show: false },
    tzDate: inZone,
    cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { show: false } },
    scales: {
      x: { range: (_, min, max) => span(min, max) },
      y: { range: (_, min, max) => [0, Math.max(top, (max ?? 0) * 1.08)] },
    },
    axes: axes(value),
    hooks: {
      setCursor: [(plot) => point(plot.cursor.idx)],
      setSelect: [(plot) => {
        const { left, width: dragged } = plot.select;
        if (dragged < DRAG_PX) return;
        const [from, to] = [left, left + dragged].map((x) => plot.posToVal(x, "x") * 1_000);
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        zoom({ from, to });
      }],
    },
  };
}

/** A chart that fills its element and is redrawn when the colours, the zone or the rows change. */
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
    for (const event of ["themechange", "zonechange"]) window.addEventListener(event, () => this.#draw());
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
