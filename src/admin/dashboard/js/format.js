// Numbers with their units, as people read them.

const THIN = "\u202f";

/** Formats by the number of their decimals. */
const FORMATS = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits, signDisplay: "negative" }));

/** A number with up to `digits` decimals, thousands apart. */
export function number(value, digits = 0) {
  return Number.isFinite(value) ? FORMATS[digits].format(value).replaceAll(",", THIN) : "–";
}

/** A rate, with as many digits as it needs. */
export function rate(value) {
  return number(value, value < 10 ? 1 : 0);
}

/** Units of long durations, each behind the next larger one, in milliseconds. */
const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** A duration from milliseconds: `640 ms`, `3.2 s`, `1 min 30 s`, `2 d 4 h`. */
export function duration(ms) {
  if (!Number.isFinite(ms)) {
    return "–";
  }
  if (ms < 60_000) {
    return ms < 1_000 ? `${rate(ms)}\u00a0ms` : `${rate(ms / 1_000)}\u00a0s`;
  }
  const at = UNITS.findIndex(([, unit]) => ms >= unit);
  const [[name, unit], [smallerName, smaller]] = UNITS.slice(at);
  const rounded = Math.round(ms / smaller) * smaller;
  const [whole, rest] = [Math.floor(rounded / unit), (rounded % unit) / smaller];
  return `${whole}\u00a0${name}${rest ? ` ${rest}\u00a0${smallerName}` : ""}`;
}

/** A share from 0 to 1 in percent. */
export function percent(share) {
  return `${rate(share * 100)}\u00a0%`;
}

/** `1 request`, `2 requests`. */
export function count(value, noun, plural = `${noun}s`) {
  return `${number(value)}\u00a0${value === 1 ? noun : plural}`;
}

/** `1 request`, `2 requests`, with a unit of a quota, which is a plural. */
export function units(value, unit) {
  return unit === "usd" ? dollars(value) : count(value, unit.replace(/s$/, ""), unit);
}

/** `2`, or `$2.00` from millionths of a dollar. */
export function amount(value, unit) {
  return unit === "usd" ? dollars(value) : number(value);
}

function dollars(millionths) {
  const style = { style: "currency", currency: "USD", maximumFractionDigits: 6 };
  return (millionths / 1e6).toLocaleString(undefined, style);
}

/** The text with a capital at its begin. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size from bytes: `640 B`, `1.5 MiB`. */
export function size(bytes) {
  const power = Math.min(SIZES.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${rate(bytes / 1024 ** power)}\u00a0${SIZES[power]}`;
}

/** A quota as configured, with its unit: `20 requests/10s`, `100 requests, 5 per 1s`. */
export function quotaText(quota, unit) {
  return quota.replace(/^\d+(?=[/,]|$)/, (limit) => units(Number(limit), unit));
}

const MINUTE = { hour: "2-digit", minute: "2-digit" };
const CLOCK = { ...MINUTE, second: "2-digit", timeZoneName: "short" };
/** The time of day alone names instants that are nearer, in milliseconds. */
const NEAR = 43_200_000;
const DATE = { year: "numeric", month: "short", day: "numeric" };

/** An instant of the server, in the reader's time zone, which it names. */
export function instant(text) {
  return local(text, { ...DATE, ...CLOCK });
}

/** The time of day of an instant, in the reader's time zone, which it names. */
export function timeOfDay(text) {
  return local(text, CLOCK);
}

/** The time of day of an instant, with its date unless that is near. */
export function moment(text, clock = CLOCK) {
  const isNear = Math.abs(new Date(text) - Date.now()) < NEAR;
  return local(text, isNear ? clock : { ...DATE, ...clock });
}

/** The minute that was `seconds` ago, in the reader's time zone. */
export function minuteAgo(seconds) {
  return moment(Date.now() - seconds * 1_000, MINUTE);
}

/** The minute of an instant, without its date. */
export function minute(instant) {
  return local(instant, MINUTE);
}

function local(text, fields) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? "–" : date.toLocaleString(undefined, fields);
}
