// What callers of the admin API have changed, the latest first.

import { every, get } from "./api.js";
import { badge, byId, empty, fill, h, named, table } from "./dom.js";
import { day, plural } from "./format.js";

const EVERY_MS = 3_000;

/** Number of changes that are shown. */
const LISTED = 12;

/** The clients of a change: the first one, and the number of the others. */
const about = ([first, ...others]) => first && [...named(first), others.length > 0 && ` and ${plural(others.length, "other")}`];

const columns = [
  { title: "When", cell: ({ at }) => h("time", { datetime: at }, day(Date.parse(at))) },
  { title: "Who", cell: ({ by }) => named(by) },
  { title: "Client", cell: ({ clients }) => about(clients) ?? "–" },
  { title: "What", cell: ({ status, what }) => [...(status >= 400 ? [badge(String(status), "bad"), " "] : []), what] },
];

async function refresh() {
  try {
    const { changes, more_changes: more } = await get(`/api/audit?kind=change&limit=${LISTED}`);
    fill(byId("change-list"), changes.length ? table("Changes by the admin API", columns, changes) : empty("No changes by the admin API."),
      more > 0 && h("p", { class: "muted" }, `${plural(more, "earlier change")}: tollgate audit --kind change.`));
  } catch (problem) {
    fill(byId("change-list"), empty(problem.message));
  }
}

export function start() {
  every(EVERY_MS, refresh);
}
