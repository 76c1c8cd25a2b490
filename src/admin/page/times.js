// Reads the times that people write: "10:03", "10:00-10:15", "yesterday 10:03", "15m". Pure.

import { civil, fromCivil, shownZone } from "./zone.js";

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DAY_MS = UNITS.d;

/** The longest text that is read. */
const MAX_LENGTH = 100;

const POINT = /^(?:(yesterday)\s+|(\d{4})-(\d\d)-(\d\d)(?:[T ]\s*|$))?(?:(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?$/i;

/** Days of a month; months count from 1. */
const daysOf = (year, month) => new Date(Date.UTC(year, month, 0)).getUTCDate();

/** A zone of a text: "Z", "+01:00"; without one, the zone that the page shows. */
function zoneOf(text, zone) {
  if (!text) return zone;
  if (/^(Z|UTC)$/i.test(text)) return "UTC";
  return `${text.slice(0, 3)}:${text.slice(-2)}`;
}

/**
 * One time: its first millisecond and its length; `null` if the text is none. A time of day without a date is
 * the last one up to `latest`, or the first one since `earliest`.
 */
function point(text, { latest, earliest }, shown) {
  const found = POINT.exec(text);
  if (!found || !text) return null;
  const [, yesterday, year, month, day, hour, minute, second, fraction, offset] = found;
  if (hour === undefined && (year === undefined || offset)) return null;
  // "10:00-10:15" is an interval, "2026-11-22T10:00:00-10:15" has an offset.
  if (offset?.startsWith("-") && !/T/i.test(text)) return null;
  const zone = zoneOf(offset, shown);
  const clock = [hour ?? 0, minute ?? 0, second ?? 0].map(Number);
  if (clock[0] > 23 || clock[1] > 59 || clock[2] > 59) return null;
  if (year && (Number(month) < 1 || Number(month) > 12 || Number(day) < 1 || Number(day) > daysOf(year, month))) return null;
  const unit = hour === undefined ? DAY_MS : second === undefined ? UNITS.m : fraction === undefined ? UNITS.s : 1;
  const more = fraction ? Math.floor(Number(`0.${fraction}`) * 1_000) : 0;
  const on = (date) => fromCivil([...date, ...clock], zone) + more;
  if (year) return { from: on([year, month, day].map(Number)), unit };
  const today = civil(earliest ?? latest, zone).slice(0, 3);
  const other = (days) => civil(fromCivil([...today, 12], zone) + days * DAY_MS, zone).slice(0, 3);
  if (yesterday) return { from: on(other(-1)), unit };
  if (earliest !== undefined) return { from: on(today) >= earliest ? on(today) : on(other(1)), unit };
  return { from: on(today) <= latest ? on(today) : on(other(-1)), unit };
}

/** Two times: the second ends the interval. "23:50-00:10" began on the day before. */
function pair(first, last, now, zone) {
  const isDated = /^\d{4}|^yesterday/i.test(first);
  if (isDated) {
    const from = point(first, { latest: now }, zone);
    return [from, from && point(last, { latest: now, earliest: /^\d{4}|^yesterday/i.test(last) ? undefined : from.from }, zone)];
  }
  const to = point(last, { latest: now }, zone);
  return [to && point(first, { latest: to.from }, zone), to];
}

/**
 * `{ from, to }` in milliseconds since 1970, `to` exclusive and `null` for "until now"; `null` if the text
 * is no time. A time of day is the last such one; "10:03" is that minute, "10:03:30" that second.
 */
export function parseTimes(text, now, zone = shownZone()) {
  const given = text.trim();
  if (given.length > MAX_LENGTH) return null;
  const [, count, unit] = /^(\d{1,6})\s*(ms|s|m|h|d)$/.exec(given) ?? [];
  if (count) return { from: now - Number(count) * UNITS[unit], to: null };
  const single = point(given, { latest: now }, zone);
  if (single) return { from: single.from, to: single.from + single.unit };
  // A date has hyphens too, so every place to split at is tried.
  for (const { index, 0: separator } of given.matchAll(/\s*(?:–|-|\/|\bto\b)\s*/g)) {
    const [first, last] = pair(given.slice(0, index), given.slice(index + separator.length), now, zone);
    // The end of an interval in a link is exclusive.
    if (first && last && first.from < last.from + last.unit) return { from: first.from, to: last.from + (separator === "/" ? 0 : last.unit) };
  }
  return null;
}

/** An interval in a link, in UTC, to the millisecond: "2026-11-22T10:03:00.000Z/2026-11-22T10:04:00.000Z". */
export const linkOf = ({ from, to }) => `${new Date(from).toISOString()}/${new Date(to).toISOString()}`.replaceAll(".000Z", "Z");

const two = (number) => String(number).padStart(2, "0");

/**
 * An interval as a person may edit it: "2026-11-22 10:03:00 – 10:03:29"; a minute is "2026-11-22 10:03".
 * `parseTimes` reads it.
 */
export function textOf({ from, to }) {
  const [a, b] = [civil(from), civil(Math.max(from, to - 1_000))];
  const dateOf = ([year, month, day]) => `${year}-${two(month)}-${two(day)} `;
  const clockOf = (parts) => parts.slice(3).map(two).join(":");
  if (from % UNITS.m === 0 && to - from === UNITS.m) return `${dateOf(a)}${clockOf(a.slice(0, 5))}`;
  const isSameDay = dateOf(a) === dateOf(b);
  return `${dateOf(a)}${clockOf(a)} – ${isSameDay ? "" : dateOf(b)}${clockOf(b)}`;
}
