/** The residual stream as a river: its width is the norm, and every block flows in from the left. */

import type { Drawing, Mark } from "./drawing";
import { short } from "./numbers";
import { COLOURS, reach, type Step } from "./residual";
import { texts } from "./texts";

type Point = [number, number];

/** A smooth step from 0 to 1. */
const ease = (s: number): number => {
  const inside = Math.max(0, Math.min(1, s));
  return inside * inside * (3 - 2 * inside);
};
const SAMPLES = 24;

/** The marks of the stream in a box: one row of a given height per step. */
export function streamMarks(steps: Step[], width: number, row: number, log: boolean): Mark[] {
  const most = Math.max(...steps.flatMap((step) => [step.norm ?? 0, step.after]));
  const widest = width * 0.42;
  const wide = (norm: number): number => Math.max(1.5, reach(norm, most, log) * widest);
  const centre = width - widest / 2 - 2;
  const lane = widest / 2 + 2;
  const right: Point[] = [];
  const left: Point[] = [];
  const marks: Mark[] = [];
  steps.forEach((step, k) => {
    const from = k ? wide(steps[k - 1]!.after) : wide(step.after);
    for (let n = 0; n <= SAMPLES; n++) {
      const s = n / SAMPLES;
      const half = (from + (wide(step.after) - from) * ease((s - 0.35) / 0.6)) / 2;
      right.push([centre + half, (k + s) * row]);
      left.push([centre - half, (k + s) * row]);
    }
  });
  marks.push({
    kind: "polygon",
    points: [...right, ...left.reverse()],
    fill: "var(--accent)",
    opacity: 0.3,
  });
  steps.forEach((step, k) => {
    if (step.norm === null) return;
    const thick = wide(step.norm);
    const one: Point[] = [];
    const other: Point[] = [];
    for (let n = 0; n <= SAMPLES; n++) {
      const s = n / SAMPLES;
      const x = lane + (centre - lane) * ease((s - 0.12) / 0.75);
      const half = (thick / 2) * (1 - ease((s - 0.55) / 0.45));
      const y = (k + 0.08 + 0.84 * s) * row;
      one.push([x + half, y]);
      other.push([x - half, y]);
    }
    marks.push({
      kind: "polygon",
      points: [...one, ...other.reverse()],
      fill: COLOURS[step.kind],
      opacity: 0.9,
    });
  });
  return marks;
}

/** The stream with its labels and numbers, for saving. */
export function streamDrawing(steps: Step[], title: string, log: boolean): Drawing {
  const t = texts.residual;
  const [left, wide, row, top] = [190, 380, 56, 64];
  const text = (x: number, y: number, text: string, soft = false): Mark => ({
    kind: "text",
    x,
    y,
    text,
    colour: soft ? "var(--soft)" : "var(--ink)",
    size: soft ? 11 : 12,
  });
  const moved = (mark: Mark): Mark =>
    mark.kind === "polygon"
      ? { ...mark, points: mark.points.map(([x, y]): Point => [x + left, y + top]) }
      : mark;
  const columns = [left + wide + 24, left + wide + 144, left + wide + 284];
  const marks: Mark[] = [
    { kind: "text", x: 16, y: 26, text: title, colour: "var(--ink)", size: 14, bold: true },
    ...[t.added, t.cosine, t.after].map((name, k) => text(columns[k]!, 52, name, true)),
    ...streamMarks(steps, wide, row, log).map(moved),
  ];
  steps.forEach((step, k) => {
    const y = top + (k + 0.5) * row;
    marks.push(
      text(16, y, [step.layer && t.layer(step.layer), step.label].filter(Boolean).join(" · ")),
    );
    [step.norm, step.cosine, step.after].forEach((number, at) => {
      if (number !== null) marks.push(text(columns[at]!, y, short(number, 2)));
    });
  });
  return {
    width: columns[2]! + 130,
    height: top + steps.length * row + 16,
    background: "var(--panel)",
    marks,
  };
}
