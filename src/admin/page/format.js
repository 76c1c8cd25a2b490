// Formats numbers, times and durations.

import { civil } from "./zone.js";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TENTH = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const THOUSANDTH = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const whole = (number) => WHOLE.format(number);

/** 4.2, 42, 4,200, 42K. */
export function amount(number) {
  if (Math.abs(number) >= 10_000) return SHORT.format(number);
  return Math.abs(number) < 10 ? TENTH.format(number) : WHOLE.format(number);
}

export function percent(part, whole) {
  if (whole === 0) return "0 %";
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.1) return "< 0.1 %";
  return `${TENTH.format(share)} %`;
}

/** "1 refusal", "2 refusals". */
export const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

/** 1 token, 0.5 tokens: with up to three decimals, as costs have. */
export const tokenCount = (count) => `${THOUSANDTH.format(count)} token${count === 1 ? "" : "s"}`;

/** 87 ms, 1.2 s, 3 min, 2.5 h, 4 d. */
export function span(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${TENTH.format(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${TENTH.format(ms / 60_000)} min`;
  if (ms < 48 * 3_600_000) return `${TENTH.format(ms / 3_600_000)} h`;
  return `${TENTH.format(ms / 86_400_000)} d`;
}

/** 64 MiB, 1.5 GiB. */
export function bytes(count) {
  const mib = count / (1 << 20);
  return mib < 1_024 ? `${WHOLE.format(mib)} MiB` : `${TENTH.format(mib / 1_024)} GiB`;
}

/** A latency: 0.4 ms, 12 ms, 1.2 s; a dash if there is none. */
export function latency(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 10 ? `${TENTH.format(ms)} ms` : span(ms);
}

const two = (number) => String(number).padStart(2, "0");

/** 16:40:03 in the zone that the page shows. */
export function clock(ms, withSeconds = true) {
  const [, , , hour, minute, second] = civil(ms);
  return `${two(hour)}:${two(minute)}${withSeconds ? `:${two(second)}` : ""}`;
}

/** 16:40:03.120. */
export const clockMs = (ms) => `${clock(ms)}.${String(((ms % 1_000) + 1_000) % 1_000 | 0).padStart(3, "0")}`;

/** 21 Nov. */
export function date(ms) {
  const [, month, day] = civil(ms);
  return `${day} ${MONTHS[month - 1]}`;
}

/** 21 Nov, 16:40:03. */
export const day = (ms) => `${date(ms)}, ${clock(ms)}`;

const isSameDay = (a, b) => civil(a).slice(0, 3).join() === civil(b).slice(0, 3).join();

/** 16:40:03 if that is today, else 21 Nov, 16:40:03. */
export const moment = (ms, now) => (isSameDay(ms, now) ? clock(ms) : day(ms));

/** 16:40:03 – 16:45:03, with dates where they are not today's. */
export function interval(from, to, now) {
  if (isSameDay(from, to)) return `${moment(from, now)} – ${clock(to)}`;
  return `${day(from)} – ${day(to)}`;
}
