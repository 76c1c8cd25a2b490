// What clients used of their quotas in the current periods: those with the largest share first.

import { every, get } from "./api.js";
import { byId, empty, fill, h, named, table } from "./dom.js";
import { percent, plural, span, whole } from "./format.js";
import { hasKind } from "./policy.js";

const EVERY_MS = 5_000;
const LISTED = 10;

/** Number of entries that are compared. */
const READ = 1_000;

const KINDS = { key: "key", ip: "address", unknown_key: "unknown key", shared: "all clients" };

const share = ({ used, limit }) => used / limit;

function client(entry) {
  const bar = h("span", { class: "bar", data: { kind: share(entry) < 1 ? "requests" : "refused" } });
  bar.style.width = `${Math.min(100, 100 * share(entry))}%`;
  const kind = h("span", { class: "muted" }, `${KINDS[entry.client_kind] ?? entry.client_kind} `);
  return [h("span", { class: "who" }, kind, named(entry.client)), bar];
}

function used(entry) {
  const over = entry.overage > 0 ? `, ${whole(entry.overage)} over` : "";
  return [whole(entry.used), h("span", { class: "muted minor" }, ` ${percent(entry.used, entry.limit)}${over}`)];
}

function list(entries, now) {
  const ends = (entry) => span(Math.max(0, Date.parse(entry.period_end) - now));
  return table("Quotas in their current periods", [
    { title: "Client", cell: client },
    { title: "Used", kind: "number", cell: used },
    { title: "Of", kind: "number", cell: (entry) => whole(entry.limit) },
    { title: "Period ends in", kind: "number", cell: ends },
    { title: "Rule", kind: "minor", cell: (entry) => named(entry.rule) },
  ], entries);
}

async function refresh() {
  byId("quotas").hidden = !hasKind("fixed_window");
  byId("quotas-link").hidden = byId("quotas").hidden;
  if (byId("quotas").hidden) return;
  try {
    const usage = await get(`/api/usage?limit=${READ}`);
    const entries = usage.entries.sort((a, b) => share(b) - share(a));
    const shown = entries.slice(0, LISTED);
    fill(byId("usage"), shown.length ? list(shown, Date.parse(usage.at)) : empty("No quota of an hour or longer has been used in its current period."));
    const of = usage.next ? `the first ${whole(READ)}` : plural(entries.length, "quota");
    const where = usage.source === "local" ? " Clients with a key in the configuration." : "";
    byId("usage-note").textContent = `Those of ${of} with the largest share.${where} For bills: GET /api/usage.`;
  } catch (problem) {
    fill(byId("usage"), empty(problem.message));
  }
}

export function start() {
  every(EVERY_MS, refresh);
}
