// The recent refusals of the client whose buckets are shown, of all gateways if they share them.

import { every } from "./api.js";
import { EVERY_KIND, runsOf } from "./audit.js";
import { byId, empty, fill, h } from "./dom.js";
import { missing, onRunClick, runTable } from "./runs.js";
import { listsAll } from "./policy.js";
import * as view from "./view.js";

const EVERY_MS = 3_000;
const LISTED = 6;
const NO_FILTER = { rule: "", kind: EVERY_KIND, at: "" };

let opened = null;

/** The elements of the list. */
export function section() {
  const list = h("div", { id: "client-refusals" });
  onRunClick(list, (run) => {
    opened = opened === run ? null : run;
    list.dispatchEvent(new Event("toggled"));
  });
  const more = h("button", { type: "button", id: "client-refusals-all" }, "All of its refusals");
  return h("article", { class: "card client-history", "aria-labelledby": "client-refusals-title" },
    h("div", { class: "heading" }, h("h3", { id: "client-refusals-title" }, "Recent refusals"), more),
    h("p", { class: "muted", id: "client-refusals-note" }, "Loading"), list);
}

/** Shows the refusals of a client and keeps them current. Returns a function that stops it. */
export function start(client) {
  let ended = false;
  opened = null;
  const refresh = async () => {
    try {
      const all = listsAll();
      const { refusal_runs: runs, more, incomplete } = await runsOf({ ...NO_FILTER, client, all }, LISTED);
      if (ended) return;
      byId("client-refusals-note").textContent = `${more > 0 ? `The latest ${runs.length} of ${runs.length + more} refusal runs` : "Refusal runs"} of ${all ? "all gateways" : "this gateway"}.${missing(incomplete)}`;
      fill(byId("client-refusals"), runs.length ? runTable("Refusals of this client", runs, opened) : empty("No refusals of this client."));
    } catch (problem) {
      if (ended) return;
      byId("client-refusals-note").textContent = "";
      fill(byId("client-refusals"), empty(problem.message));
    }
  };
  byId("client-refusals").addEventListener("toggled", refresh);
  byId("client-refusals-all").addEventListener("click", () =>
    view.go({ section: "refusals", who: client.id, rule: "", kind: "", at: "", all: listsAll() }));
  const stop = every(EVERY_MS, refresh);
  return () => {
    ended = true;
    stop();
  };
}
