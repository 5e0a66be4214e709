/** Attention vs. effect: a summary of one row, and a scatter plot of all pairs. */

import type { Drawing, Mark } from "./drawing";
import { short } from "./numbers";
import { texts } from "./texts";

/** Smaller effects (in nats) do not count as an effect. */
const MIN_EFFECT = 0.01;

/** With more points than this only the selected row is drawn. */
const MAX_POINTS = 4000;

export interface Pair {
  row: number;
  column: number;
  weight: number;
  effect: number;
}

/** The weight and the effect of every cell. */
export function pairsOf(
  weights: { data: Float32Array; cols: number },
  effects: number[][],
): Pair[] {
  return effects.flatMap((line, row) =>
    line.map((effect, column) => ({
      row,
      column,
      weight: weights.data[row * weights.cols + column] ?? 0,
      effect,
    })),
  );
}

const largest = (pairs: Pair[], by: "weight" | "effect"): Pair =>
  pairs.reduce((best, one) => (one[by] > best[by] ? one : best));

/** The source token with the highest weight and the one with the largest effect, as a sentence. */
export function summaryOf(pairs: Pair[], next: string, sources: string[]): string {
  const t = texts.ablation;
  const [attended, needed] = [largest(pairs, "weight"), largest(pairs, "effect")];
  const named = (pair: Pair): string => `${pair.column} “${sources[pair.column] ?? ""}”`;
  if (needed.effect < MIN_EFFECT)
    return t.summaryNoEffect(next, named(attended), short(attended.weight, 2));
  return t.summary(
    next,
    named(attended),
    short(attended.weight, 2),
    named(needed),
    short(needed.effect, 2),
  );
}

/** Weight on the x axis, effect on the y axis. The points of the selected row are labelled. */
export function scatterOf(
  pairs: Pair[],
  row: number,
  sources: string[],
  width: number,
  title = "",
): Drawing {
  const t = texts.ablation;
  const [left, right, top, bottom] = [54, 20, title ? 40 : 12, 44];
  const height = 340 + (title ? 28 : 0);
  const [low, high] = pairs.reduce(
    ([least, most], pair) => [Math.min(least, pair.effect), Math.max(most, pair.effect)],
    [0, 1e-6],
  );
  const x = (weight: number): number => left + weight * (width - left - right);
  const y = (effect: number): number =>
    height - bottom - ((effect - low) / (high - low)) * (height - top - bottom);
  const marks: Mark[] = title
    ? [{ kind: "text", x: left, y: 24, text: title, colour: "var(--ink)", size: 15, bold: true }]
    : [];
  marks.push({
    kind: "line",
    points: [
      [x(0), y(0)],
      [x(1), y(0)],
    ],
    colour: "var(--line-strong)",
  });
  marks.push({
    kind: "line",
    points: [
      [x(0), y(low)],
      [x(0), y(high)],
    ],
    colour: "var(--line-strong)",
  });
  for (const at of [0, 0.5, 1])
    marks.push({
      kind: "text",
      x: x(at),
      y: height - bottom + 16,
      text: short(at, 1),
      colour: "var(--soft)",
      align: "middle",
      size: 11,
    });
  for (const at of [low, high])
    if (at)
      marks.push({
        kind: "text",
        x: left - 6,
        y: y(at) + 4,
        text: short(at, 2),
        colour: "var(--soft)",
        align: "end",
        size: 11,
      });
  marks.push({
    kind: "text",
    x: (x(0) + x(1)) / 2,
    y: height - 8,
    text: t.weights,
    colour: "var(--soft)",
    align: "middle",
  });
  marks.push({
    kind: "text",
    x: 14,
    y: (y(low) + y(high)) / 2,
    text: t.effects,
    colour: "var(--soft)",
    align: "middle",
    rotated: true,
  });
  const own = pairs.filter((pair) => pair.row === row);
  const others = pairs.length > MAX_POINTS ? [] : pairs.filter((pair) => pair.row !== row);
  for (const pair of others)
    marks.push({
      kind: "circle",
      x: x(pair.weight),
      y: y(pair.effect),
      r: 3,
      fill: "var(--line-strong)",
    });
  for (const pair of own)
    marks.push({
      kind: "circle",
      x: x(pair.weight),
      y: y(pair.effect),
      r: 5,
      fill: "var(--accent)",
    });
  for (const pair of own.filter((one) => one.weight > 0.08 || one.effect > 0.08 * high)) {
    const end = pair.weight > 0.8;
    marks.push({
      kind: "text",
      x: x(pair.weight) + (end ? -9 : 9),
      y: y(pair.effect) + 4,
      text: `${pair.column} ${sources[pair.column] ?? ""}`,
      colour: "var(--ink)",
      align: end ? "end" : "start",
      bold: true,
    });
  }
  return { width, height, background: "var(--panel)", marks };
}
