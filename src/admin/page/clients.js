// The clients with the most requests and the most refusals.

import { every, get } from "./api.js";
import { byId, code, empty, fill, h, named, table } from "./dom.js";
import { percent, span, whole } from "./format.js";
import { isShadow } from "./policy.js";
import * as view from "./view.js";

const EVERY_MS = 3_000;
const LISTED = 8;

const KINDS = { key: "key", ip: "address", unknown_key: "unknown key" };

let rule = "";

/**
 * One list of all rules: a client that several count is named once, with its largest count. What a
 * shadow rule would have refused was not refused, so it is listed only where that rule is chosen.
 */
function merged(answer, by) {
  const clients = new Map();
  for (const { rule: name, clients: list } of answer.rules) {
    if (rule === "" && isShadow(name)) continue;
    for (const client of list) {
      const known = clients.get(`${client.kind} ${client.id}`);
      if (!known || client[by] > known[by]) clients.set(`${client.kind} ${client.id}`, { ...client, rule: name });
    }
  }
  return [...clients.values()].filter((client) => client[by] > 0).sort((a, b) => b[by] - a[by]).slice(0, LISTED);
}

function name(client) {
  const kind = h("span", { class: "muted" }, `${KINDS[client.kind] ?? client.kind} `);
  // The admin API has no buckets of theirs.
  if (client.kind === "unknown_key" || client.kind === "token") return [kind, code(client.id)];
  return [kind, h("button", {
    type: "button", class: "link", "aria-label": `Watch the buckets of ${client.id}`,
    data: { kind: client.kind, id: client.id },
  }, named(client.id))];
}

function list(answer, by, caption) {
  const clients = merged(answer, by);
  if (clients.length === 0) return empty(by === "refused" ? "No recent refusals." : "No recent requests.");
  const most = clients[0][by];
  return table(caption, [
    { title: "Client", cell: (client) => {
      const bar = h("span", { class: "bar", data: { kind: by } });
      bar.style.width = `${(100 * client[by]) / most}%`;
      return [h("span", { class: "who" }, ...name(client)), bar];
    } },
    { title: "Requests", kind: "number", cell: (client) => whole(client.requests) },
    { title: "Refused", kind: "number", cell: (client) => [whole(client.refused), h("span", { class: "muted minor" }, ` ${percent(client.refused, client.requests)}`)] },
    { title: "Rule", kind: "minor", cell: (client) => named(client.rule) },
  ], clients);
}

async function refresh() {
  const query = (by) => `/api/clients?by=${by}&limit=${LISTED}${rule && `&rule=${encodeURIComponent(rule)}`}`;
  try {
    const [busiest, refused] = await Promise.all([get(query("requests")), get(query("refused"))]);
    fill(byId("busiest"), list(busiest, "requests", "Busiest clients"));
    fill(byId("most-refused"), list(refused, "refused", "Most refused clients"));
    byId("clients-note").textContent =
      `This gateway, over the last ${span(busiest.since_ms)}: ${whole(busiest.counted)} counted; `
      + (busiest.error_at_most > 0 ? `each count is too high by at most ${whole(busiest.error_at_most)}.` : "exact so far.");
  } catch (problem) {
    for (const id of ["busiest", "most-refused"]) fill(byId(id), empty(problem.message));
  }
}

export function start() {
  every(EVERY_MS, refresh);
  for (const id of ["busiest", "most-refused"]) {
    byId(id).addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) view.go({ section: "buckets", client: { kind: button.dataset.kind, id: button.dataset.id, ip: "", route: "" } });
    });
  }
  byId("clients-rule").addEventListener("change", (event) => {
    rule = event.target.value;
    refresh();
  });
}
