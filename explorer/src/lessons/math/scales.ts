/** Linear scales from data to pixels and back. */

export interface Scales {
  x: (value: number) => number;
  y: (value: number) => number;
  /** from pixels to data */
  invert: (px: number, py: number) => [number, number];
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export function scalesOf(
  [x0, x1]: [number, number],
  [y0, y1]: [number, number],
  width: number,
  height: number,
  margin: { left: number; right: number; top: number; bottom: number },
): Scales {
  const [left, right] = [margin.left, width - margin.right];
  const [top, bottom] = [margin.top, height - margin.bottom];
  const [kx, ky] = [(right - left) / (x1 - x0), (bottom - top) / (y1 - y0)];
  return {
    x: (value) => left + (value - x0) * kx,
    y: (value) => bottom - (value - y0) * ky,
    invert: (px, py) => [x0 + (px - left) / kx, y0 + (bottom - py) / ky],
    left,
    right,
    top,
    bottom,
  };
}

export const clamp = (value: number, low: number, high: number): number =>
  Math.max(low, Math.min(high, value));
