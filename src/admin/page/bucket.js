// A token bucket with the arithmetic of the gateway: integers, no rounding. Pure: time is a number.

/** Parts of a token; the bucket refills by `rate` parts per microsecond. */
const PARTS = 1_000_000;

export class Bucket {
  #parts;
  #at = 0;

  /** `rate` in tokens per second, `burst` and `cost` in tokens. Starts full. */
  constructor({ rate, burst, cost = 1 }) {
    this.rate = rate;
    this.burst = burst;
    this.cost = cost;
    this.#parts = burst * PARTS;
  }

  /** The level in tokens. Times are microseconds and must not decrease. */
  level(at) {
    return Math.min(this.burst * PARTS, this.#parts + (at - this.#at) * this.rate) / PARTS;
  }

  /** A request: takes its cost, or nothing. */
  take(at) {
    this.#parts = Math.min(this.burst * PARTS, this.#parts + (at - this.#at) * this.rate);
    this.#at = at;
    const cost = this.cost * PARTS;
    if (this.#parts < cost) {
      return { at, accepted: false, level: this.#parts / PARTS, retryAfter: Math.ceil((cost - this.#parts) / this.rate) };
    }
    this.#parts -= cost;
    return { at, accepted: true, level: this.#parts / PARTS, retryAfter: 0 };
  }
}

/** Pseudo-random numbers from 0 to 1 with a fixed seed, so that a pattern is reproducible. */
function numbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const SECOND = 1_000_000;
const range = (count) => Array.from({ length: count }, (_, index) => index);

/** Times of requests in microseconds: on average `load` per second, for `seconds`. */
export const PATTERNS = {
  steady: (load, seconds) => range(load * seconds).map((index) => Math.round((index * SECOND) / load)),
  bursts: (load, seconds) => range(Math.ceil(seconds / 5)).flatMap((wave) => range(load * 5).map(() => wave * 5 * SECOND)),
  // The n-th request comes when the integral of the rate is n.
  ramp: (load, seconds) => range(load * seconds).map((index) => Math.round(seconds * SECOND * Math.sqrt(index / (load * seconds)))),
  random: (load, seconds) => {
    const next = numbers(7);
    const times = [];
    for (let at = 0; ; ) {
      at += (-Math.log(1 - next()) * SECOND) / load;
      if (at >= seconds * SECOND) return times;
      times.push(Math.round(at));
    }
  },
};

/** The level over time as points of a line, `[seconds, tokens]`, up to `until` microseconds. */
export function corners({ rate, burst, cost }, outcomes, until) {
  const points = [[0, burst]];
  let [at, level] = [0, burst];
  const rise = (to) => {
    const full = at + ((burst - level) * SECOND) / rate;
    if (full > at && full < to) points.push([full / SECOND, burst]);
    level = Math.min(burst, level + ((to - at) * rate) / SECOND);
    at = to;
    points.push([at / SECOND, level]);
  };
  for (const outcome of outcomes) {
    if (outcome.at > until) break;
    rise(outcome.at);
    if (!outcome.accepted) continue;
    level -= cost;
    points.push([at / SECOND, level]);
  }
  rise(until);
  return points;
}
