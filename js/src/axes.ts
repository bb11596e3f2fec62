/**
 * This module knows where numbers fall on an axis and which round ones to label.
 * It does not know what is drawn.
 */
import { symexp, symlog } from "./colours";

export type Scale = { readonly low: number; readonly high: number; readonly log: boolean };

/** Position between 0 and 1. */
export function position(value: number, scale: Scale): number {
  const f = scale.log ? symlog : (x: number) => x;
  const [low, high] = [f(scale.low), f(scale.high)];
  return high > low ? (f(value) - low) / (high - low) : 0.5;
}

/** The value at a position between 0 and 1. */
export function valueAt(place: number, scale: Scale): number {
  if (!scale.log) return scale.low + place * (scale.high - scale.low);
  const [low, high] = [symlog(scale.low), symlog(scale.high)];
  return symexp(low + place * (high - low));
}

/** Some `count` round values inside the scale; whole ones only for `whole`. */
export function ticks(scale: Scale, count: number, whole = false): number[] {
  if (!(scale.high > scale.low)) return [scale.low];
  if (scale.log) {
    const found = Array.from({ length: count }, (_, i) => round(valueAt(i / (count - 1), scale)));
    return [...new Set(found)].filter((tick) => tick >= scale.low && tick <= scale.high);
  }
  const raw = (scale.high - scale.low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((nice) => nice * power >= raw) ?? 10;
  const step = whole ? Math.max(1, Math.round(factor * power)) : factor * power;
  const found: number[] = [];
  for (let i = Math.ceil(scale.low / step); i * step <= scale.high && found.length < 100; i++) found.push(i * step);
  return found;
}

function round(value: number): number {
  return Number(value.toPrecision(1));
}

/** A short text for a tick: as many digits as the others need. */
export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(6)));
}

/** A scale around numbers with a little air; a constant gets one unit each side. */
export function scaleOf(low: number, high: number, log: boolean): Scale {
  if (!(low <= high)) return { low: 0, high: 1, log };
  if (low === high) return { low: low - (Math.abs(low) * 0.1 || 1), high: high + (Math.abs(high) * 0.1 || 1), log };
  const air = log ? 0 : (high - low) * 0.04;
  return { low: low - air, high: high + air, log };
}
