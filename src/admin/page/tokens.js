// Interpolates a bucket between two responses of the gateway. A fixed window does not refill: it is full again
// when its period ends. Nor does a sliding window: each token comes back when it has left the window. Units of requests in
// flight are free when these end. Pure.

import { whole } from "./format.js";

const MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Tokens per millisecond of "100/s", "5/250ms"; NaN if the text is not a rate. */
export function perMs(rate) {
  const [, tokens, count, unit] = /^(\d+)\/(\d*)(ms|s|m|h|d)$/.exec(rate) ?? [];
  return Number(tokens) / ((count ? Number(count) : 1) * MS[unit]);
}

/** Milliseconds in which a bucket gains `tokens`. */
export const refillMs = (rate, tokens) => Math.ceil(tokens / perMs(rate));

/** Tokens with their fraction, from the time until the bucket is full. */
export function exact({ kind, tokens, burst, window_ms: empty, full_after_ms: full }, sinceMs = 0) {
  if (kind === "fixed_window" || kind === "sliding_window" || kind === "concurrency") return tokens;
  return Math.min(burst, burst - Math.max(0, full - sinceMs) * (burst / empty));
}

/** Milliseconds until a request with this cost is allowed; 0 if it is allowed now. An upper bound for costs above 1 in
 * a sliding window. */
export function nextAfterMs({ kind, tokens, burst, window_ms: empty, full_after_ms: full, next_after_ms: next }, cost = 1) {
  if (kind === "sliding_window") return tokens >= cost ? 0 : cost === 1 ? next : full;
  if (kind === "fixed_window" || kind === "concurrency") return tokens >= cost ? 0 : full;
  const spare = (burst - cost) * (empty / burst);
  return Math.max(0, Math.ceil(full - spare));
}

/** The limit in words: "10/s, burst 20", "20 in flight", "1000/month, months from day 1 in UTC", "100/s, delay up to
 * 500 ms", or "100/m in any window". */
export const limitText = ({ kind, rate, burst, periods, max_delay_ms: delay }) => {
  if (kind === "fixed_window" || periods) return [rate, periods].filter(Boolean).join(", ");
  if (kind === "concurrency" || / in flight$/.test(rate)) return rate;
  if (kind === "sliding_window") return `${rate} in any window`;
  if (delay !== undefined) return `${rate}, delay up to ${whole(delay)} ms`;
  return `${rate}, burst ${whole(burst)}`;
};
