// One bucket: its level, the time of the next allowed request, and its last minute.

import { h, named } from "./dom.js";
import { clockMs, span, whole } from "./format.js";
import { axes, Chart, colour, inZone, RIGHT_PX } from "./chart.js";
import { exact, limitText, nextAfterMs } from "./tokens.js";

/** Time span of the chart. */
const SHOWN_MS = 60_000;

/** Below this fraction of the burst, a bucket is highlighted. */
const LOW = 0.2;

export class BucketCard {
  #past = [];
  #burst;
  #chart;
  #parts;

  constructor(rule, { reset, grant }) {
    const part = (tag, name) => h(tag, { class: name });
    this.#parts = {
      limit: part("p", "muted"), tokens: part("strong", "tokens"), of: part("span", "muted"),
      fill: part("div", "level-fill"), takes: part("dt", "takes"), next: part("dd", "next"), full: part("dd", "full"), chart: part("div", "chart small"),
    };
    const title = `bucket-${rule.rule}`;
    this.#parts.level = h("div", {
      class: "level", role: "meter", "aria-label": `Tokens of ${rule.rule}`, "aria-valuemin": "0",
    }, this.#parts.fill);
    this.#parts.chart.setAttribute("role", "img");
    this.#parts.chart.setAttribute("aria-label", `Tokens of ${rule.rule} over the last minute`);
    this.element = h("article", { class: "card bucket-card", "aria-labelledby": title, data: { rule: rule.rule } },
      h("div", { class: "heading" }, h("h3", { id: title }, named(rule.rule)),
        rule.mode === "shadow" && h("span", { class: "badge" }, "shadow"),
        !rule.own && h("span", { class: "badge", title: "Other clients share this bucket" }, "shared")),
      this.#parts.limit,
      h("p", { class: "count" }, this.#parts.tokens, this.#parts.of),
      this.#parts.level,
      h("dl", { class: "facts" },
        h("div", {}, this.#parts.takes, this.#parts.next),
        h("div", {}, h("dt", {}, "Full again"), this.#parts.full)),
      this.#parts.chart,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: reset, "aria-label": `Reset ${rule.rule}` }, "Reset"),
        h("button", { type: "button", onclick: grant, "aria-label": `Grant tokens to ${rule.rule}` }, "Grant")));
    this.#chart = new Chart(this.#parts.chart, (width, height) => this.#options(width, height));
  }

  /** Shows the present state; the next request takes `cost`. */
  show(rule, cost, at) {
    const { limit, tokens, of, fill, level, next, full } = this.#parts;
    this.#burst = rule.burst;
    const share = Math.max(0, Math.min(1, rule.tokens / rule.burst));
    limit.textContent = limitText(rule);
    tokens.textContent = whole(rule.tokens);
    of.textContent = ` of ${whole(rule.burst)} tokens`;
    fill.style.width = `${100 * share}%`;
    level.dataset.kind = rule.tokens < 1 ? "bad" : share < LOW ? "warn" : "good";
    level.setAttribute("aria-valuemax", rule.burst);
    level.setAttribute("aria-valuenow", Math.max(0, rule.tokens));
    const wait = nextAfterMs(rule, cost);
    this.#parts.takes.textContent = cost !== 1 ? `Next request allowed (cost ${cost})` : "Next request allowed";
    next.textContent = wait === 0 ? "now" : `in ${span(wait)}, at ${clockMs(Date.now() + wait)}`;
    next.dataset.kind = wait === 0 ? "good" : "bad";
    full.textContent = rule.full_after_ms === 0 ? "now" : `in ${span(rule.full_after_ms)}`;
    this.#past.push({ at, wall: Date.now(), tokens: exact(rule) });
    while (this.#past[0].at < at - SHOWN_MS) this.#past.shift();
    this.#chart.show([this.#past.map(({ wall }) => wall / 1_000), this.#past.map((point) => point.tokens)], `${rule.burst}`);
  }

  #options(width, height) {
    const line = colour("--c1");
    return {
      width, height, padding: [6, RIGHT_PX, 0, 0], legend: { show: false },
      tzDate: inZone, cursor: { show: false },
      scales: {
        x: { range: (_, min, max) => [max - SHOWN_MS / 1_000, max] },
        y: { range: (_, min) => [Math.min(0, min), this.#burst] },
      },
      axes: axes(),
      series: [{}, { stroke: line, width: 2, fill: `${line}33`, points: { show: false } }],
    };
  }
}
