// Clients that are banned, and how to lift their bans.

import { every, get, remove } from "./api.js";
import { byId, empty, fill, h, named, table } from "./dom.js";
import { span } from "./format.js";
import { hasBans } from "./policy.js";

const EVERY_MS = 3_000;
const LISTED = 20;

const KINDS = { key: "key", ip: "address", unknown_key: "unknown key" };

function lift(ban) {
  return h("button", { type: "button", "aria-label": `Lift the ban of ${ban.client}`, data: { ban: ban.id, client: ban.client } }, "Lift");
}

function list(bans) {
  return table("Banned clients", [
    { title: "Client", cell: (ban) => [h("span", { class: "muted" }, `${KINDS[ban.kind] ?? ban.kind} `), named(ban.client)] },
    { title: "Ends in", kind: "number", cell: (ban) => span(ban.left_ms) },
    { title: "Rule", kind: "minor", cell: (ban) => named(ban.rule) },
    { title: "By", kind: "minor", cell: (ban) => [ban.by ?? "refusals", ...(ban.reason ? [h("span", { class: "muted block words" }, ban.reason)] : [])] },
    { title: "", cell: lift },
  ], bans);
}

async function refresh() {
  byId("bans-card").hidden = !hasBans();
  if (byId("bans-card").hidden) return;
  try {
    const { bans, next } = await get(`/api/bans?limit=${LISTED}`);
    fill(byId("bans"), bans.length ? list(bans) : empty("No client is banned."));
    if (next) byId("bans").append(h("p", { class: "muted" }, "There are more: GET /api/bans lists them."));
  } catch (problem) {
    fill(byId("bans"), empty(problem.message));
  }
}

export function start() {
  every(EVERY_MS, refresh);
  byId("bans").addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    button.disabled = true;
    try {
      await remove(`/api/bans?id=${button.dataset.ban}`);
      byId("bans-note").textContent = `The ban of ${button.dataset.client} is lifted.`;
    } catch (problem) {
      byId("bans-note").textContent = problem.message;
    }
    refresh();
  });
}
