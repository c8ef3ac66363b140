// Numbers as people read them. What is unknown is an en dash.
import type { Figure } from "./types";

export const UNKNOWN = "–";

const isKnown = (value: Figure): value is number => value !== null && value !== undefined && Number.isFinite(value);

/** Three digits that matter, and no more than three decimals. */
export function digits(value: Figure): string {
  if (!isKnown(value)) return UNKNOWN;
  if (value === 0) return "0";
  if (value >= 999.5) return count(Math.round(value));
  if (value < 0.0005) return "<0.001";
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.00995 ? 2 : 3);
}

export function scaled(value: Figure, unit: string): string {
  if (!isKnown(value)) return UNKNOWN;
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  const text = step === 0 && Number.isInteger(value) ? String(value) : digits(value);
  return `${text} ${prefixes[step]}${unit}`.trim();
}

/** Packets per second. */
export const packets = (value: Figure): string => scaled(value, value === 1 ? "packet/s" : "packets/s");

export const bits = (value: Figure): string => scaled(value, "bit/s");

/** Microseconds as milliseconds, or seconds where they are many. */
export function time(us: Figure): string {
  if (!isKnown(us)) return UNKNOWN;
  return us >= 1e6 ? `${digits(us / 1e6)} s` : `${digits(us / 1e3)} ms`;
}

export const millis = (us: Figure): string => (isKnown(us) ? digits(us / 1e3) : UNKNOWN);
export const megabits = (bps: Figure): string => (isKnown(bps) ? digits(bps / 1e6) : UNKNOWN);

export function percent(share: Figure): string {
  if (!isKnown(share)) return UNKNOWN;
  const value = share * 100;
  return `${value === 0 || value >= 9.95 ? value.toFixed(0) : value.toFixed(1)} %`;
}

export const count = (value: Figure): string => (isKnown(value) ? value.toLocaleString("en-GB") : UNKNOWN);

export const plural = (number: number, one: string, many = `${one}s`): string =>
  `${count(number)} ${number === 1 ? one : many}`;

export function duration(seconds: number): string {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
  return `${plural(Math.floor(s / 86400), "day")} ${Math.floor((s / 3600) % 24)} h`;
}

export const clock = (seconds: number): string => new Date(seconds * 1000).toTimeString().slice(0, 8);

export function clockShort(seconds: number): string {
  const text = clock(seconds);
  return text.endsWith(":00") ? text.slice(0, 5) : text;
}

/** The difference of two counters per second; unknown if one went back. */
export function perSecond(was: Figure, is: Figure, seconds: number): Figure {
  if (!isKnown(was) || !isKnown(is) || seconds <= 0 || is < was) return undefined;
  return (is - was) / seconds;
}
