// Responses: status classes, and errors and latency by route and by upstream.

import { byId, code, empty, fill, h, named } from "./dom.js";
import { amount, latency, percent } from "./format.js";
import { REST } from "./outcomes.js";
import { counts, errorsBy, latencies, perName } from "./series.js";
import { SortedTable } from "./sortable.js";
import { TimeChart } from "./timechart.js";
import * as view from "./view.js";

const CLASSES = {
  "1xx": "1xx", "2xx": "2xx", "3xx": "3xx", "4xx": "4xx, refusals included",
  "5xx": "5xx", none: "no response: the client left",
};

/** Members of a sample whose rows have latencies, and their names in a link. */
const MEMBERS = { route: "routes", upstream: "upstreams" };

let statuses;
let latencyChart;
let tables;
let errors;
let last = null;

/** Only the classes that occur, and always 2xx and 5xx. */
function classesOf(samples) {
  const names = Object.keys(CLASSES).filter((name) => name === "2xx" || name === "5xx" || samples.some((sample) => sample.statuses?.[name] > 0));
  return Object.fromEntries(names.map((name) => [name, CLASSES[name]]));
}

/** "route", "search" of "route:search"; the latency of all requests if the text is none of them. */
function chosen() {
  const [, kind, name] = /^(route|upstream):(.*)$/.exec(view.current().latency) ?? [];
  return { kind, name };
}

const nameOf = (kind, name) => (name === "" ? `no ${kind}` : name === REST ? "others" : name);

function columns(kind, ms) {
  const rate = (count) => amount(ms === 0 ? 0 : (count * 1_000) / ms);
  const { kind: shownKind, name: shownName } = chosen();
  const button = ({ name }) => h("button", {
    type: "button", class: "link", data: { latency: `${kind}:${name}` },
    "aria-pressed": String(kind === shownKind && name === shownName), "aria-label": `Chart the latency of ${nameOf(kind, name)}`,
  }, code(nameOf(kind, name)));
  const failures = { id: "failures", title: "No answer", kind: "number", cell: (row) => amount(row.failures), value: (row) => row.failures };
  return [
    { id: "name", title: kind === "route" ? "Route" : "Upstream", cell: button, value: (row) => row.name, first: "ascending" },
    { id: "requests", title: "Req/s", kind: "number", cell: (row) => rate(row.requests), value: (row) => row.requests },
    { id: "errors", title: "5xx", kind: "number", value: (row) => row.errors,
      cell: (row) => [amount(row.errors), h("span", { class: "muted minor" }, ` ${percent(row.errors, row.requests)}`)] },
    ...(kind === "upstream" ? [failures] : []),
    { id: "p50", title: "p50", kind: "number", cell: (row) => latency(row.p50_ms), value: (row) => row.p50_ms ?? -1 },
    { id: "p99", title: "p99", kind: "number", cell: (row) => latency(row.p99_ms), value: (row) => row.p99_ms ?? -1 },
  ];
}

/** Shows the charts of errors, where there are any. */
function showErrors({ samples, span }) {
  for (const [kind, member] of Object.entries(MEMBERS)) {
    const shown = errorsBy(samples, member);
    byId(`errors-${kind}-part`).hidden = shown.rows.length === 0;
    if (shown.rows.length > 0) errors[kind].show(shown, span);
  }
}

/** Shows the latency of all requests, or of the chosen route or upstream. */
function showLatency({ samples, span }) {
  const { kind, name } = chosen();
  byId("latency-of").textContent = kind ? `Of the ${kind} ${nameOf(kind, name)}${kind === "upstream" ? ", to the first byte of its response" : ""}.` : "Of all requests.";
  byId("latency-all").hidden = !kind;
  latencyChart.show(latencies(samples, (sample) => (kind ? sample[MEMBERS[kind]]?.[name] : sample.latency)), span);
}

function showTables({ samples }) {
  const ms = samples.reduce((sum, sample) => sum + sample.span_ms, 0);
  for (const [kind, member] of Object.entries(MEMBERS)) {
    const rows = perName(samples, member);
    fill(byId(`by-${kind}`), rows.length === 0 ? empty(kind === "route" ? "No requests in this range." : "No request was forwarded in this range.") : tables[kind].render(columns(kind, ms), rows));
  }
}

export function show(state) {
  if (!state.redraws) return;
  last = state;
  statuses.show(counts(state.samples, "statuses", classesOf(state.samples)), state.span);
  showLatency(state);
  showErrors(state);
  showTables(state);
}

export function start() {
  statuses = new TimeChart(byId("statuses"), byId("statuses-legend"), { label: "Responses per second by status class", word: ({ name }) => name });
  latencyChart = new TimeChart(byId("latency"), byId("latency-legend"), {
    label: "Latency, p50 and p99", word: ({ name }) => name, value: latency, unit: "latency", stacks: false, top: 0.5,
  });
  errors = Object.fromEntries(Object.keys(MEMBERS).map((kind) => [kind, new TimeChart(byId(`errors-${kind}`), byId(`errors-${kind}-legend`), {
    label: `Errors per second by ${kind}`, top: 0.1,
    word: (row) => [...named(nameOf(kind, row.name)), row.kind === "failures" ? ", no answer" : ", 5xx"],
  })]));
  tables = Object.fromEntries(Object.keys(MEMBERS).map((kind) => [kind, new SortedTable(`By ${kind}`, "requests")]));
  for (const kind of Object.keys(MEMBERS)) {
    byId(`by-${kind}`).addEventListener("click", (event) => {
      const { latency: of, sort } = event.target.closest("button")?.dataset ?? {};
      if (sort) tables[kind].sort(sort, columns(kind, 0));
      if (of) view.change({ latency: of === view.current().latency ? "" : of });
      else if (sort && last) showTables(last);
    });
  }
  byId("latency-all").addEventListener("click", () => view.change({ latency: "" }));
  view.listen((now, before) => now.latency !== before.latency && last && show({ ...last, redraws: true }));
}
