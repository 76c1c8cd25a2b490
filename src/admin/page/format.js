// Formats numbers, times and durations.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TENTH = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

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

/** 87 ms, 1.2 s, 3 min, 2.5 h, 4 d. */
export function span(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${TENTH.format(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${TENTH.format(ms / 60_000)} min`;
  if (ms < 48 * 3_600_000) return `${TENTH.format(ms / 3_600_000)} h`;
  return `${TENTH.format(ms / 86_400_000)} d`;
}

const two = (number) => String(number).padStart(2, "0");

/** 16:40:03 in the browser's time zone. */
export function clock(ms, withSeconds = true) {
  const date = new Date(ms);
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return withSeconds ? `${minutes}:${two(date.getSeconds())}` : minutes;
}

/** 16:40:03.120. */
export const clockMs = (ms) => `${clock(ms)}.${String(new Date(ms).getMilliseconds()).padStart(3, "0")}`;

/** 21 Nov, 16:40:03. */
export function day(ms) {
  const date = new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return `${date}, ${clock(ms)}`;
}

/** 16:40:03 if that is today, else 21 Nov, 16:40:03. */
export const moment = (ms, now) =>
  (new Date(ms).toDateString() === new Date(now).toDateString() ? clock(ms) : day(ms));
