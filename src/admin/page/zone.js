// The time zone in which the page shows times. Pure but for the zone chosen.

/** Names of the choices, as in a link. */
export const ZONES = ["browser", "utc", "gateway"];

/** The zone of the gateway as the browser knows it; `null` until the gateway has said it. */
let gateway = null;
let chosen = "browser";

const formats = new Map();

function format(zone) {
  if (!formats.has(zone)) {
    formats.set(zone, new Intl.DateTimeFormat("en-GB", {
      timeZone: zone, hourCycle: "h23", calendar: "iso8601", numberingSystem: "latn",
      year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    }));
  }
  return formats.get(zone);
}

/** Whether this browser knows the zone. */
function isKnown(zone) {
  if (fixedOffset(zone) !== null) return true;
  try {
    format(zone);
    return true;
  } catch {
    return false;
  }
}

const two = (number) => String(number).padStart(2, "0");

/** "+01:00" of seconds east of UTC. */
function offsetName(seconds) {
  const minutes = Math.round(Math.abs(seconds) / 60);
  return `${seconds < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

/** Sets the gateway's zone: its IANA name and its present offset. An unknown name is shown by its offset. */
export function setGateway(name, offsetS = 0) {
  gateway = [name, offsetName(offsetS)].find((zone) => zone && isKnown(zone)) ?? null;
  return gateway;
}

export const choose = (name) => {
  chosen = ZONES.includes(name) ? name : "browser";
};

/** The name of a choice that `Intl` understands; UTC while the gateway's zone is unknown. */
export function zoneOf(choice) {
  if (choice === "browser") return Intl.DateTimeFormat().resolvedOptions().timeZone;
  return choice === "gateway" ? gateway ?? "UTC" : "UTC";
}

/** The zone in which times are shown. */
export const shownZone = () => zoneOf(chosen);

/** Milliseconds of "+05:30"; `null` for the name of a zone. Not every browser takes an offset as a zone. */
function fixedOffset(zone) {
  const [, sign, hours, minutes] = /^([+-])(\d\d):(\d\d)$/.exec(zone) ?? [];
  return sign ? (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000 : null;
}

/** `[year, month, day, hour, minute, second]` of a time. Months count from 1. */
export function civil(ms, zone = shownZone()) {
  const ahead = fixedOffset(zone);
  if (ahead !== null) return new Date(ms + ahead).toISOString().match(/\d+/g).slice(0, 6).map(Number);
  const parts = Object.fromEntries(format(zone).formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
  return [parts.year, parts.month, parts.day, parts.hour, parts.minute, parts.second];
}

const asUtc = ([year, month, day, hour = 0, minute = 0, second = 0]) => Date.UTC(year, month - 1, day, hour, minute, second);

/** Milliseconds east of UTC. */
export const offset = (ms, zone = shownZone()) => asUtc(civil(ms, zone)) - Math.floor(ms / 1_000) * 1_000;

/** The time of a clock on the wall. One that is skipped in spring is read with the offset before the change. */
export function fromCivil(parts, zone = shownZone()) {
  const wall = asUtc(parts);
  const candidates = [wall - 86_400_000, wall + 86_400_000].map((near) => wall - offset(near, zone));
  return candidates.find((ms) => asUtc(civil(ms, zone)) === wall) ?? candidates[0];
}

/** "+01:00" for a time in the shown zone, "" in UTC. */
export function offsetText(ms) {
  const ahead = offset(ms) / 1_000;
  return ahead === 0 ? "" : offsetName(ahead);
}

/** "Browser: Europe/Berlin". */
export function label(choice) {
  const zone = zoneOf(choice);
  const text = /^[+-]/.test(zone) ? `UTC${zone}` : zone;
  return choice === "utc" ? "UTC" : `${choice === "browser" ? "Browser" : "Gateway"}: ${text}`;
}
