// The last reloads, with their changes or errors.

import { every, get, post } from "./api.js";
import { badge, byId, fill, h } from "./dom.js";
import { day, plural } from "./format.js";

const EVERY_MS = 3_000;

const CAUSES = { file_changed: "the file changed", requested: "requested" };

/** One setting as a diff. */
function change({ kind, name, what, setting, from, to }) {
  const place = h("span", { class: "place" }, `[${kind}${name ? ` ${name}` : ""}]${setting ? ` ${setting}` : ""}`);
  const line = (sign, text) => h("span", { class: "line", data: { sign } },
    h("span", { class: "hidden" }, sign === "-" ? "before: " : "after: "), `${sign} ${text}`);
  const lines = [from !== undefined && line("-", from), to !== undefined && line("+", to)].filter(Boolean);
  if (lines.length === 0) {
    const sign = { added: "+", removed: "-" }[what];
    return h("li", {}, h("span", { class: sign ? "line" : "", data: { sign } }, sign ? `${sign} ` : "", place, sign ? ` ${what}` : `: ${what.replaceAll("_", " ")}`));
  }
  return h("li", {}, place, ...lines);
}

/** An error or a warning about the file. */
function finding({ message, line, column, help }, mark) {
  const place = line ? `line ${line}${column ? `:${column}` : ""}  ` : "";
  return h("li", {}, mark, h("span", { class: "place" }, place), message, help ? h("span", { class: "muted block" }, help) : null);
}

const warning = (found) => finding(found, [badge("warning", "warn"), " "]);

/** The changes of a file, or its errors; and its warnings. */
function details(reload) {
  const { changes, more_changes: moreChanges = 0, errors = [], more_errors: moreErrors = 0, warnings = [], more_warnings: moreWarnings = 0 } = reload;
  const items = changes ? changes.map(change) : errors.map((error) => finding(error));
  const more = (count, what) => count > 0 && h("li", { class: "muted" }, `and ${count} more${what}`);
  const all = [...items, more(moreChanges + moreErrors, ""), ...warnings.map(warning), more(moreWarnings, " warnings")].filter(Boolean);
  const isSame = items.length === 0 && changes;
  return [isSame && h("p", { class: "muted" }, "Only comments or order changed."), all.length > 0 && h("ul", { class: "diff" }, all)];
}

function entry(reload) {
  const applied = reload.result === "applied";
  return h("li", { class: "card" },
    h("div", { class: "heading" },
      h("h3", {}, h("time", { datetime: reload.at }, day(Date.parse(reload.at)))),
      badge(applied ? "applied" : "rejected", applied ? "good" : "bad"),
      h("span", { class: "muted" }, `${CAUSES[reload.cause] ?? reload.cause}; no. ${reload.generation} in force`)),
    details(reload));
}

/** Shows the warnings of the file in force, also if it has not changed since the start. */
export function showWarnings({ warnings = [], more_warnings: more = 0 }) {
  const items = [...warnings.map(warning), more > 0 && h("li", { class: "muted" }, `and ${more} more`)].filter(Boolean);
  byId("file-warnings").hidden = items.length === 0;
  fill(byId("file-warnings"), h("h3", {}, `The file in force has ${plural(warnings.length + more, "warning")}`), h("ul", { class: "diff" }, items));
}

async function refresh() {
  try {
    const { reloads } = await get("/api/reloads");
    fill(byId("reloads"), reloads.length ? reloads.map(entry)
      : h("li", { class: "card empty" }, "The file has not changed since the gateway started."));
  } catch (problem) {
    fill(byId("reloads"), h("li", { class: "card empty" }, problem.message));
  }
}

async function reload() {
  const place = byId("reload-result");
  try {
    const { result, generation, changes = [], warnings = [] } = await post("/api/reload");
    const more = warnings.length > 0 ? ` The file has ${plural(warnings.length, "warning")}.` : "";
    place.textContent = (result === "applied" ? `Applied: no. ${generation} is in force, with ${plural(changes.length, "change")}.`
      : "Unchanged: the file is already in force.") + more;
  } catch (problem) {
    const count = problem.body?.errors?.length;
    place.textContent = count ? `Rejected: ${plural(count, "error")}; the previous configuration stays in force.` : problem.message;
  }
  await refresh();
}

export function start() {
  every(EVERY_MS, refresh);
  byId("reload").addEventListener("click", reload);
}
