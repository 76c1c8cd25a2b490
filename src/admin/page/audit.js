// Asks `GET /api/audit` for refusal runs.

import { get } from "./api.js";
import { parseTimes } from "./times.js";

/** The parameter that asks for the runs of all gateways. */
const ALL = ["all", "true"];

/** The kinds of requests that were refused: all but `shadow`, whose requests were allowed. */
const REFUSED = "limit,unavailable,unauthorized";

/** The choice of every kind. */
export const EVERY_KIND = "all";

/** Interprets a search text as a key id or an address. Key ids have no colon. */
export function searchTerm(text, keys) {
  if (text === "") return {};
  const isAddress = !keys.includes(text) && (text.includes(":") || /^\d+(\.\d+){3}$/.test(text));
  return isAddress ? { ip: text } : { key: text };
}

/**
 * The parameters of a filter: `{ who, rule, kind, at, all }` as in the view, or with a `client` instead of
 * `who`. `keys` are the ids in the file.
 */
export function queryOf({ who, client, rule, kind, at, all }, keys, limit, now) {
  const range = at ? parseTimes(at, now) : null;
  const of = who === undefined ? { [client.kind]: client.id } : searchTerm(who, keys);
  const query = new URLSearchParams({ ...of, ...(rule && { rule }), ...(kind !== EVERY_KIND && { kind: kind || REFUSED }) });
  // The gateway has no times before 1970.
  const since1970 = (ms) => new Date(Math.max(0, ms)).toISOString();
  if (range) query.set("since", since1970(range.from));
  // The end of a range is exclusive, that of the parameter is not.
  if (range && range.to !== null) query.set("until", since1970(range.to - 1));
  if (all) query.set(...ALL);
  query.set("limit", limit);
  return query.toString();
}

/** The ids of the keys in the file. */
export const keyIds = () => [...document.getElementById("key-ids").options].map((option) => option.value);

export const runsOf = (filter, limit) => get(`/api/audit?${queryOf(filter, keyIds(), limit, Date.now())}`);
