/** A number with a fixed count of decimals and a true minus; what rounds to zero has no sign. */
export const fixed = (value: number, decimals: number): string =>
  (Math.round(value * 10 ** decimals) / 10 ** decimals || 0).toFixed(decimals).replace("-", "−");
