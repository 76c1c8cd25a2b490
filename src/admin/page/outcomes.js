// The outcome of a request. Every request has exactly one, so that all totals on the page agree. Pure.

export const OUTCOMES = ["allowed", "refused", "unavailable", "unauthorized", "rejected"];

/** Titles of the outcomes, for the columns of a table. */
export const TITLES = {
  allowed: "Allowed", refused: "Refused", unavailable: "503", unauthorized: "401", rejected: "Other 4xx",
};

/** The outcomes in words. */
export const WORDS = {
  allowed: "allowed", refused: "refused by a rate limit (429)", unavailable: "refused without Redis (503)",
  unauthorized: "without a valid key (401)", rejected: "rejected before any limit (other 4xx)",
};

/** Name of the row of the names that a sample does not list. No name in the file can be equal to it. */
export const REST = "…";

/** Counts of the outcomes in one row; 0 for those that are not there. */
export const countsOf = (row = {}) => Object.fromEntries(OUTCOMES.map((outcome) => [outcome, row[outcome] ?? 0]));

export const total = (row = {}) => OUTCOMES.reduce((sum, outcome) => sum + (row[outcome] ?? 0), 0);

/** Counts of all requests of a sample: the sum of its plans. */
export function requestsOf(sample) {
  if (sample.requests) return countsOf(sample.requests);
  const sum = countsOf();
  for (const plan of Object.values(sample.plans ?? {})) {
    for (const outcome of OUTCOMES) sum[outcome] += plan[outcome] ?? 0;
  }
  return sum;
}

/** Counts and milliseconds of several samples together. */
export function summed(samples) {
  const all = { ...countsOf(), ms: 0, errors: 0 };
  for (const sample of samples) {
    all.ms += sample.span_ms;
    all.errors += sample.statuses?.["5xx"] ?? 0;
    const requests = requestsOf(sample);
    for (const outcome of OUTCOMES) all[outcome] += requests[outcome];
  }
  return all;
}
