// Samples and refusal runs of a day, in the form of `GET /api/samples`, `/api/events` and `/api/audit`: a test
// cannot wait for 24 hours.

/** Steps of the gateway's stored samples: how far back each goes. */
const TIERS = [[1_000, 300_000], [10_000, 3_600_000], [60_000, 21_600_000], [300_000, 86_400_000]];

const OUTCOMES = ["allowed", "refused", "unavailable", "unauthorized", "rejected"];

/** A long name, as long as a name may be. */
export const long = (name) => `${name}-${"an-extraordinarily-long-name-for-a-limit-".repeat(2)}`.slice(0, 63).concat("x");

/** A number from 0 to 1 that depends only on `at` and `salt`. */
function noise(at, salt) {
  const x = Math.sin(at / 997 + salt * 78.233) * 43_758.5453;
  return x - Math.floor(x);
}

/** One sample of `step` milliseconds that ends at `at`. */
export function sample(at, step, names = { plans: ["free", "pro"], rules: ["per-key", "per-ip"], routes: ["search", "rest"], upstreams: ["api"] }) {
  const count = (perSecond, salt) => Math.round((perSecond * (0.6 + 0.8 * noise(at, salt)) * step) / 1_000);
  const day = 1 + Math.sin((at / 86_400_000) * 2 * Math.PI);
  const plans = Object.fromEntries(names.plans.map((name, index) => [name, {
    allowed: count(20 * day * (index + 1), index), refused: count(4 * day, index + 10), unavailable: index === 0 ? count(0.4, 5) : 0, unauthorized: 0, rejected: 0,
  }]));
  plans[""] = { allowed: 0, refused: 0, unavailable: 0, unauthorized: count(3, 6), rejected: count(2, 7) };
  const requests = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, Object.values(plans).reduce((sum, plan) => sum + plan[outcome], 0)]));
  const total = Object.values(requests).reduce((sum, value) => sum + value, 0);
  const share = (part) => Math.floor(total * part);
  const latency = (base, salt) => ({ p50_ms: base * (1 + noise(at, salt)), p99_ms: base * (6 + 9 * noise(at, salt + 1)) });
  const split = (list, more) => Object.fromEntries(list.map((name, index) => [name, {
    requests: index === 0 ? total - share(0.3) * (list.length - 1) : share(0.3), errors: count(0.5, index + 20), ...more(index), ...latency(4 + 9 * index, index + 30),
  }]));
  const [first, ...others] = names.rules;
  const less = others.map((name, index) => [name, Math.floor(requests.refused / (3 + index) / others.length)]);
  const rest = requests.refused - less.reduce((sum, [, refused]) => sum + refused, 0);
  const rules = Object.fromEntries([[first, rest], ...less].map(([name, refused], index) => [name, { allowed: requests.allowed, refused, shadow_refused: index === 1 ? count(2, 8) : 0 }]));
  const five = count(1, 40);
  return {
    at_ms: at, span_ms: step, requests, plans, rules, routes: split(names.routes, () => ({})), upstreams: split(names.upstreams, (index) => ({ failures: count(0.1, index + 50) })),
    latency: latency(5, 60), statuses: { "2xx": requests.allowed - five - 1, "4xx": total - requests.allowed - requests.unavailable, "5xx": five + requests.unavailable, none: 1 },
    sources: { redis: share(0.7), cache: share(0.2) }, redis_calls: { ok: share(0.7) }, retries: 0, in_flight: 3, local_buckets: 12,
    breaker: "closed", transitions: {}, gateways: 3, generation: 4, config_valid: true,
  };
}

/** The answer of `GET /api/samples` for a gateway that has run for a day. */
export function samples(from, to, now, names) {
  const [step] = TIERS.find(([, reach]) => now - from <= reach + 10_000) ?? TIERS.at(-1);
  const list = [];
  for (let at = Math.ceil(from / step) * step; at <= Math.min(to, now); at += step) list.push(sample(at, step, names));
  return { step_ms: step, from_ms: from, to_ms: to, time_zone: "America/New_York", utc_offset_s: -18_000, samples: list, total: list.length ? { latency: { p50_ms: 7, p99_ms: 321 } } : null };
}

/** Answers the page's requests for samples and events with those of the fixture. */
export async function serveSamples(page, names) {
  await page.route(/\/api\/samples\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const now = Date.now();
    const at = (name, otherwise) => Date.parse(query.get(name)) || otherwise;
    return route.fulfill({ json: samples(at("from", now - 5_000), at("to", now), now, names) });
  });
  await page.route(/\/api\/events$/, (route) => {
    const now = Math.floor(Date.now() / 1_000) * 1_000;
    const history = Array.from({ length: 300 }, (_, index) => sample(now - (299 - index) * 1_000, 1_000, names));
    return route.fulfill({ contentType: "text/event-stream", body: `event: history\ndata: ${JSON.stringify(history)}\n\n` });
  });
}
