// What a bucket holds between two answers of the gateway, and when it lets a request pass. Pure.

const MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Tokens per millisecond of "100/s", "5/250ms"; NaN for what is no rate. */
export function perMs(rate) {
  const [, tokens, count, unit] = /^(\d+)\/(\d*)(ms|s|m|h|d)$/.exec(rate) ?? [];
  return Number(tokens) / ((count ? Number(count) : 1) * MS[unit]);
}

/** Tokens with their fraction: a bucket that is full after t lacks what comes in in t. */
export function exact({ rate, burst, full_after_ms: full }, sinceMs = 0) {
  return Math.min(burst, burst - Math.max(0, full - sinceMs) * perMs(rate));
}

/** How long until a request of this cost passes, in ms; 0 where it does now. */
export function nextAfterMs({ rate, burst, full_after_ms: full }, cost = 1) {
  const spare = (burst - cost) / perMs(rate);
  return Math.max(0, Math.ceil(full - spare));
}
