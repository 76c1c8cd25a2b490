// The playground: one limit of any kind, and a pattern of requests.

import { byId } from "./dom.js";
import { span, whole } from "./format.js";
import { axes, Chart, colour } from "./chart.js";
import { KINDS, simulate } from "./kinds.js";

const SECONDS = 20;

/** A replay is faster than real time and takes eight seconds. */
const SPEED = 2.5;

const KNOBS = {
  rate: (value) => `${value}/s`,
  burst: (value) => value,
  cost: (value) => value,
  load: (value) => `${value}/s`,
  period: (value) => `${value} s`,
  delay: (value) => `${value} s`,
  duration: (value) => `${value} s`,
};

let chart;
let settings;
let outcomes;
let playing = null;

/** Merges the lines, which have different times, into rows with common times, as uPlot requires. */
function joined(until) {
  const line = KINDS[settings.kind].line(settings, outcomes, until);
  const times = [];
  const rows = [[], [], []];
  const add = (time, ...values) => {
    times.push(time);
    rows.forEach((row, index) => row.push(values[index]));
  };
  let next = 0;
  for (const [time, level] of line) {
    while (next < outcomes.length && outcomes[next].at / 1e6 <= time && outcomes[next].at <= until) {
      const outcome = outcomes[next];
      if (outcome.accepted) add(outcome.at / 1e6, undefined, outcome.level, undefined);
      else add(outcome.at / 1e6, undefined, undefined, outcome.level);
      next += 1;
    }
    add(time, level, undefined, undefined);
  }
  const order = times.map((_, index) => index).sort((a, b) => times[a] - times[b]);
  return [order.map((index) => times[index]), ...rows.map((row) => order.map((index) => row[index]))];
}

function options(width, height) {
  const line = colour("--c1");
  const dots = (name, size) => ({
    stroke: colour(name), paths: () => null, points: { show: true, size, fill: colour(name), width: 0 },
  });
  return {
    width, height, padding: [8, 18, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: [0, SECONDS] }, y: { range: () => [0, KINDS[settings.kind].most(settings) * 1.06] } },
    axes: axes().map((axis, index) => (index === 0 ? { ...axis, values: (_, times) => times.map((time) => `${time} s`) } : axis)),
    series: [{}, { stroke: line, width: 2, fill: `${line}2e`, spanGaps: true, points: { show: false } }, dots("--good", 6), dots("--bad", 6)],
  };
}

function draw(until) {
  chart.show(joined(until), "bucket");
  const kind = KINDS[settings.kind];
  const level = kind.line(settings, outcomes, until).at(-1)[1];
  byId("bucket-fill").style.height = `${(100 * level) / kind.most(settings)}%`;
  byId("bucket-text").textContent = whole(Math.floor(level));
}

function summary() {
  const passed = outcomes.filter((outcome) => outcome.accepted).length;
  const refused = outcomes.length - passed;
  const first = outcomes.find((outcome) => !outcome.accepted);
  const firstRefusal = first ? ` The first refusal is after ${span(first.at / 1_000)}, with a retry after ${span(first.retryAfter / 1_000)}.` : "";
  byId("bucket-summary").textContent =
    `Of ${whole(outcomes.length)} requests in ${SECONDS} s, ${whole(passed)} are accepted and ${whole(refused)} refused. `
    + `${KINDS[settings.kind].promise(settings, outcomes)}${firstRefusal}`;
  byId("bucket-chart").setAttribute("aria-label", `${KINDS[settings.kind].level} over ${SECONDS} seconds, with ${passed} accepted and ${refused} refused requests`);
}

function read() {
  const form = byId("bucket-form");
  const number = (name) => Number(form.elements[name].value);
  const [kind, pattern] = [form.elements.kind.value, form.elements.pattern.value];
  settings = { kind, pattern, seconds: SECONDS };
  for (const name of Object.keys(KNOBS)) {
    settings[name] = number(name);
    form.elements[name].closest("label").hidden = name !== "load" && !KINDS[kind].knobs.includes(name);
  }
  const text = (id, words) => { byId(id).textContent = words; };
  text("burst-name", kind === "token_bucket" ? "Burst, tokens" : "Limit, tokens");
  text("level-name", KINDS[kind].level);
  for (const words of document.querySelectorAll("#learn [data-kind-of-limit]")) words.hidden = words.dataset.kindOfLimit !== kind;
  for (const [name, text] of Object.entries(KNOBS)) form.elements[`${name}Out`].value = text(settings[name]);
  // A cost above the burst is an error in the file, so it cannot be set here.
  form.elements.cost.max = Math.min(10, settings.burst);
  settings.cost = Math.min(settings.cost, settings.burst);
}

function change() {
  pause();
  read();
  outcomes = simulate(settings);
  draw(SECONDS * 1e6);
  summary();
}

function pause() {
  cancelAnimationFrame(playing);
  playing = null;
  byId("play").textContent = "Play";
}

function play() {
  if (playing !== null) {
    pause();
    draw(SECONDS * 1e6);
    return;
  }
  byId("play").textContent = "Stop";
  const began = performance.now();
  const turn = (now) => {
    const until = Math.min(SECONDS, (Math.max(0, now - began) / 1_000) * SPEED);
    draw(Math.round(until * 1e6));
    if (until < SECONDS) playing = requestAnimationFrame(turn);
    else pause();
  };
  playing = requestAnimationFrame(turn);
}

export function start() {
  chart = new Chart(byId("bucket-chart"), options);
  const form = byId("bucket-form");
  form.addEventListener("input", change);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    play();
  });
  change();
}
