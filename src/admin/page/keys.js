// Clients of the key store: a page of them at a time, and what can be done with one.

import { every, get, remove, Problem, post } from "./api.js";
import { badge, byId, empty, fill, h, named, table } from "./dom.js";
import { confirm } from "./dialogs.js";
import { day, plural, whole } from "./format.js";

const EVERY_MS = 5_000;

/** Interval while there is no store, or the token does not have the role. */
const HIDDEN_MS = 60_000;

/** Clients of a page. */
const LISTED = 25;

/** Delay after typing before a request is sent. */
const TYPING_MS = 300;

/** Hours that the other keys of a client are still valid after a rotation, and the most. */
const OVERLAP_H = 24;
const MAX_OVERLAP_H = 87_840;

/** Cursors of the pages before this one, the first of which has none. */
let before = [];
let cursor = "";
let next = null;
let requests = 0;
let typing = null;

const form = () => byId("keys-form").elements;

const path = (id, call = "") => `/api/keys/${encodeURIComponent(id)}${call}`;

const time = (at) => (at ? h("time", { datetime: at }, day(Date.parse(at))) : "–");

/** A button for a client. The table listens, since its rows are reused. */
const button = (call, id, text) => h("button", { type: "button", data: { call, id }, "aria-label": `${text} ${id}` }, text);

const columns = [
  { title: "Client", cell: ({ id, metadata }) => [...named(id), ...Object.entries(metadata).map(([name, text]) => h("span", { class: "muted block" }, `${name}: ${text}`))] },
  { title: "Plan", cell: ({ plan }) => named(plan) },
  { title: "Tenant", kind: "minor", cell: ({ tenant }) => (tenant ? named(tenant) : "–") },
  { title: "State", cell: ({ enabled }) => badge(enabled ? "enabled" : "disabled", enabled ? "good" : "bad") },
  { title: "Keys", kind: "number", cell: ({ secrets }) => whole(secrets.length) },
  { title: "Last used", kind: "minor", cell: ({ last_used: used }) => time(used) },
  { title: "Actions", cell: ({ id, enabled }) => [button("rotate", id, "Rotate"), " ", enabled ? button("disable", id, "Disable") : button("enable", id, "Enable"), " ", button("delete", id, "Delete")] },
];

const damagedColumns = [
  { title: "Client that cannot be read", cell: ({ id }) => named(id) },
  { title: "Why", cell: ({ why }) => why },
  { title: "Actions", cell: ({ id }) => button("delete", id, "Delete") },
];

function queryOf() {
  const { from, plan, tenant, metadata } = form();
  const query = new URLSearchParams({ limit: LISTED });
  const texts = { plan: plan.value, tenant: tenant.value.trim(), metadata: metadata.value.trim(), cursor: cursor || from.value.trim() };
  for (const [name, text] of Object.entries(texts)) if (text) query.set(name, text);
  return query;
}

function show({ keys, damaged, next: following, total }) {
  next = following;
  byId("keys-note").textContent = total === null ? "The clients of the tenant of this token." : `${plural(total, "client")} in the key store.`;
  fill(byId("key-list"),
    keys.length ? table("Clients of the key store", columns, keys) : empty(following ? "None of these: there are further clients." : "No such clients."),
    damaged.length > 0 && table("Clients that cannot be read", damagedColumns, damaged));
  byId("keys-previous").disabled = before.length === 0;
  byId("keys-next").disabled = next === null;
}

/** Shows or hides the section. Without the role, there is none. */
function setShown(isShown) {
  byId("keys").hidden = !isShown;
  byId("keys-link").hidden = !isShown;
}

/** Whether the gateway has a key store. A token with the role `keys` alone may not ask: then it is tried. */
async function hasStore() {
  try {
    return (await get("/api/status")).key_store !== null;
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 403) return true;
    throw problem;
  }
}

async function refresh() {
  requests += 1;
  const own = requests;
  try {
    if (byId("keys").hidden && !await hasStore()) return;
    const answer = await get(`/api/keys?${queryOf()}`);
    if (own !== requests) return;
    setShown(true);
    show(answer);
  } catch (problem) {
    if (own !== requests) return;
    if (problem instanceof Problem && [403, 404, 409].includes(problem.status)) setShown(false);
    else fill(byId("key-list"), empty(problem.message));
  }
}

/** Goes to the page after `cursor`; a filter begins with the first. */
function go(to, earlier) {
  [cursor, before] = [to, earlier];
  return refresh();
}

function say(text) {
  byId("keys-result").textContent = text;
}

/** Shows a new API key. It is in no other response, and leaves the page with the dialog. */
function showKey({ id, key }) {
  const dialog = byId("new-key");
  const input = byId("new-key-text");
  byId("new-key-title").textContent = `API key of ${id}`;
  input.value = key;
  byId("new-key-copied").textContent = "";
  dialog.onclose = () => {
    input.value = "";
  };
  dialog.showModal();
  input.select();
}

async function copy() {
  const input = byId("new-key-text");
  input.select();
  try {
    await navigator.clipboard.writeText(input.value);
    byId("new-key-copied").textContent = "Copied.";
  } catch {
    // Browsers have a clipboard on secure pages only. The text is selected.
    byId("new-key-copied").textContent = "Press Ctrl+C to copy.";
  }
}

const CALLS = {
  async rotate(id) {
    const hours = await confirm({
      title: `A new key for ${id}?`, yes: "Rotate",
      text: "The present keys are still valid for this time. 0 ends them at once, such as after a leak.",
      number: { label: "Hours", value: OVERLAP_H, min: 0, max: MAX_OVERLAP_H },
    });
    if (hours === null) return;
    showKey(await post(path(id, "/rotate"), { overlap: `${hours}h` }));
    say(`${id} has a new key.`);
  },
  async disable(id) {
    const yes = await confirm({ title: `Disable ${id}?`, yes: "Disable", text: "Its requests get 401 within a second, with all of its keys." });
    if (!yes) return;
    await post(path(id, "/disable"));
    say(`${id} is disabled.`);
  },
  async enable(id) {
    await post(path(id, "/enable"));
    say(`${id} is enabled.`);
  },
  async delete(id) {
    const yes = await confirm({ title: `Delete ${id}?`, yes: "Delete", text: "The client and its keys are removed. This cannot be undone." });
    if (!yes) return;
    await remove(path(id));
    say(`${id} is removed.`);
  },
};

async function act(call, id) {
  try {
    await CALLS[call](id);
  } catch (problem) {
    say(problem.message);
  }
  await refresh();
}

/** Creates the client of the form in the dialog. */
async function create(event) {
  event.preventDefault();
  const { id, plan, tenant, metadata } = event.target.elements;
  const error = byId("new-client-error");
  const texts = metadata.value.trim().split(/\s*,\s*/).filter(Boolean).map((text) => text.split(/=(.*)/s).slice(0, 2));
  if (texts.some(([, text]) => text === undefined)) {
    error.textContent = "Metadata is name=text, with commas between several.";
    return;
  }
  const given = { id: id.value.trim(), plan: plan.value, tenant: tenant.value.trim() };
  const body = Object.fromEntries(Object.entries(given).filter(([, text]) => text));
  try {
    const made = await post("/api/keys", { ...body, metadata: Object.fromEntries(texts) });
    byId("new-client").close();
    say(`${made.id} is created.`);
    showKey(made);
    await refresh();
  } catch (problem) {
    error.textContent = problem.message;
  }
}

/** Fills the lists of plans, from `GET /api/policy`: a token with the role `keys` alone may not read it. */
async function listPlans() {
  const { plans } = await get("/api/policy").catch(() => ({ plans: [] }));
  const options = () => plans.map((name) => h("option", { value: name }, name));
  form().plan.append(...options());
  byId("new-client-plan").append(...options());
}

export function start() {
  every(() => (byId("keys").hidden ? HIDDEN_MS : EVERY_MS), refresh);
  listPlans();
  const first = () => go("", []);
  byId("keys-form").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(first, TYPING_MS);
  });
  byId("keys-form").addEventListener("submit", (event) => {
    event.preventDefault();
    first();
  });
  byId("keys-next").addEventListener("click", () => next !== null && go(next, [...before, cursor]));
  byId("keys-previous").addEventListener("click", () => before.length > 0 && go(before.at(-1), before.slice(0, -1)));
  byId("key-list").addEventListener("click", (event) => {
    const { call, id } = event.target.closest("button")?.dataset ?? {};
    if (call) act(call, id);
  });
  byId("keys-create").addEventListener("click", () => {
    byId("new-client-form").reset();
    byId("new-client-error").textContent = "";
    byId("new-client").showModal();
  });
  byId("new-client-form").addEventListener("submit", create);
  byId("new-client-cancel").addEventListener("click", () => byId("new-client").close());
  byId("new-key-copy").addEventListener("click", copy);
}
