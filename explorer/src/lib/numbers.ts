/** Formatting of numbers. */

import type { Real } from "./contract";

/** A number from JSON, where non-finite values are strings. */
export function real(value: Real): number {
  return value === "-inf" ? -Infinity : value === "inf" ? Infinity : value === "nan" ? NaN : value;
}

/** Short, with a minus sign: 0.43, −1.20, 3e−7, −∞. */
export function short(value: Real, digits = 3): string {
  const number = real(value);
  if (number === Infinity) return "∞";
  if (number === -Infinity) return "−∞";
  if (Number.isNaN(number)) return "not a number";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text =
    size >= 1e5 || size < 10 ** -digits
      ? number.toExponential(1).replace("e+", "e")
      : number.toFixed(digits);
  return text.replaceAll("-", "−");
}

/** Two decimals, with a minus sign: a share or a score. */
export const fixed = (value: number): string => value.toFixed(2).replace("-", "−");

/** The order of magnitude of a difference: 3e−7. */
export const order = (value: number): string =>
  value === 0 ? "0" : value.toExponential(0).replace("-", "−");

/** Nine significant digits. */
export function full(value: Real): string {
  const number = real(value);
  if (!Number.isFinite(number)) return short(number);
  return String(Number(number.toPrecision(9))).replaceAll("-", "−");
}

/** A count with thousands separators: 1,234,567. */
export const count = (value: number): string => value.toLocaleString("en-GB");

/** At most four characters, for a small cell. */
export function tiny(value: number): string {
  if (!Number.isFinite(value)) return short(value);
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.replace(/^(-?)0\./, "$1.").replace("-", "−");
}
