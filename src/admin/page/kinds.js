// The kinds of limit of the playground. Pure: time is a number, in microseconds.

import { Bucket, corners, PATTERNS } from "./bucket.js";

const SECOND = 1_000_000;

/** Tokens that requests take and that come back, each at its time. */
class Held {
  #uses = [];

  /** `back`: the time at which the tokens of a request come back. */
  constructor(limit, cost, back) {
    Object.assign(this, { limit, cost, back });
  }

  /** A request: takes its cost, or nothing. */
  take(at) {
    this.#uses = this.#uses.filter(({ back }) => back > at);
    const left = this.limit - this.#uses.length * this.cost;
    if (left >= this.cost) {
      const back = this.back(at);
      this.#uses.push({ back });
      return { at, accepted: true, level: left - this.cost, retryAfter: 0, back };
    }
    // The n-th use to end leaves room.
    const ends = this.#uses.map(({ back }) => back).sort((a, b) => a - b);
    const needed = Math.ceil((this.cost - left) / this.cost);
    return { at, accepted: false, level: left, retryAfter: ends[needed - 1] - at };
  }
}

/** Requests that wait until a bucket of the same rate has refilled. */
class Leaky {
  constructor({ rate, delay }) {
    this.rate = rate;
    this.delay = delay * SECOND;
    // When the next request can pass.
    this.free = 0;
    this.passes = [];
  }

  take(at) {
    this.passes = this.passes.filter((time) => time > at);
    const passes = Math.max(at, this.free);
    if (passes - at > this.delay) return { at, accepted: false, level: this.passes.length, retryAfter: passes - at - this.delay };
    this.free = passes + SECOND / this.rate;
    if (passes > at) this.passes.push(passes);
    return { at, accepted: true, level: this.passes.length, retryAfter: 0, back: passes };
  }
}

/** The level over time of tokens that come back, as points of a line, `[seconds, level]`, up to `until`. */
function steps(start, change, outcomes, until) {
  const accepted = outcomes.filter((outcome) => outcome.accepted && outcome.back > outcome.at);
  const events = accepted
    .flatMap(({ at, back }) => [[at, change], [back, -change]])
    .filter(([at]) => at <= until)
    // What comes back at a time is there for a request at that time.
    .sort((a, b) => a[0] - b[0] || (b[1] - a[1]) * Math.sign(-change));
  const points = [[0, start]];
  let level = start;
  for (const [at, delta] of events) {
    points.push([at / SECOND, level]);
    level += delta;
    points.push([at / SECOND, level]);
  }
  points.push([until / SECOND, level]);
  return points;
}

/** The most tokens that were taken in any span of this many microseconds. */
function mostIn(spanUs, outcomes, cost) {
  const times = outcomes.filter(({ accepted }) => accepted).map(({ at }) => at);
  let [most, first] = [0, 0];
  times.forEach((time, index) => {
    while (times[first] <= time - spanUs) first += 1;
    most = Math.max(most, index - first + 1);
  });
  return most * cost;
}

const held = (settings, outcomes, until) => steps(settings.burst, -settings.cost, outcomes, until);

/**
 * Each kind: its settings; what the level is; the highest level; a limit in its initial state; the line of the level; and
 * what is true of every pattern.
 */
export const KINDS = {
  token_bucket: {
    knobs: ["rate", "burst", "cost"],
    level: "tokens",
    most: ({ burst }) => burst,
    make: (settings) => new Bucket(settings),
    line: corners,
    promise: ({ rate, burst, cost, seconds }) =>
      `No pattern gets more than burst + rate · t: (${burst} + ${rate} · ${seconds})${cost > 1 ? ` / ${cost}` : ""} = `
      + `${Math.floor((burst + rate * seconds) / cost)}.`,
  },
  fixed_window: {
    knobs: ["burst", "cost", "period"],
    level: "left of the period",
    most: ({ burst }) => burst,
    make: ({ burst, cost, period }) => new Held(burst, cost, (at) => (Math.floor(at / (period * SECOND)) + 1) * period * SECOND),
    line: held,
    promise: ({ burst, cost, period }, outcomes) =>
      `No pattern gets more than ${burst} in a period of ${period} s. In a span across a boundary it can be twice that; the `
      + `most here in any ${period} s is ${mostIn(period * SECOND, outcomes, cost)}.`,
  },
  concurrency: {
    knobs: ["burst", "cost", "duration"],
    level: "free",
    most: ({ burst }) => burst,
    make: ({ burst, cost, duration }) => new Held(burst, cost, (at) => at + duration * SECOND),
    line: held,
    promise: ({ burst }) => `No pattern gets more than ${burst} at once. When one ends is not known beforehand, so the real Retry-After is a guess.`,
  },
  sliding_window: {
    knobs: ["burst", "cost", "period"],
    level: "left of the window",
    most: ({ burst }) => burst,
    make: ({ burst, cost, period }) => new Held(burst, cost, (at) => at + period * SECOND),
    line: held,
    promise: ({ burst, cost, period }, outcomes) =>
      `No pattern gets more than ${burst} in any ${period} s, and none is refused below that; the most here is `
      + `${mostIn(period * SECOND, outcomes, cost)}.`,
  },
  leaky_bucket: {
    knobs: ["rate", "delay"],
    level: "waiting requests",
    most: ({ rate, delay }) => Math.max(1, rate * delay),
    make: (settings) => new Leaky(settings),
    line: (settings, outcomes, until) => steps(0, 1, outcomes, until),
    promise: ({ rate }, outcomes) => {
      const waits = outcomes.filter(({ accepted }) => accepted).map(({ at, back }) => back - at);
      return `No pattern passes more than ${rate} a second. The longest wait here is ${(Math.max(0, ...waits) / SECOND).toFixed(1)} s.`;
    },
  },
};

/** Simulates the requests of a pattern on one limit, in order of time. */
export function simulate(settings) {
  const { kind, pattern, load, seconds } = settings;
  const limit = KINDS[kind].make(settings);
  if (pattern !== "retry_after") return PATTERNS[pattern](load, seconds).map((at) => limit.take(at));
  const outcomes = [];
  for (let at = 0; at < seconds * SECOND; ) {
    const outcome = limit.take(at);
    outcomes.push(outcome);
    at += outcome.accepted ? Math.round(SECOND / load) : Math.max(1, Math.ceil(outcome.retryAfter));
  }
  return outcomes;
}
