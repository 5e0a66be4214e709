/** The residual stream as a drawing: its width is the norm, and every block flows in from the left. */

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
  const shares = steps.map((step) => ({
    added: step.norm === null ? null : reach(step.norm, most, log),
    after: reach(step.after, most, log),
  }));
  // One scale for both, so that no contribution is thicker than its row.
  const thickest = Math.max(0.01, ...shares.map((share) => share.added ?? 0));
  const widest = Math.min(width * 0.5, (row - 12) / thickest);
  const centre = width * 0.55 + (width * 0.45 - widest / 2) / 2;
  const right: Point[] = [];
  const left: Point[] = [];
  const half = (k: number, s: number): number => {
    const [from, to] = [shares[Math.max(0, k - 1)]!.after, shares[k]!.after];
    return Math.max(1, ((from + (to - from) * ease((s - 0.3) / 0.6)) * widest) / 2);
  };
  steps.forEach((_, k) => {
    for (let n = 0; n <= SAMPLES; n++) {
      const s = n / SAMPLES;
      right.push([centre + half(k, s), (k + s) * row]);
      left.push([centre - half(k, s), (k + s) * row]);
    }
  });
  const marks: Mark[] = [
    {
      kind: "polygon",
      points: [...right, ...left.reverse()],
      fill: "var(--accent)",
      opacity: 0.32,
    },
  ];
  shares.forEach(({ added }, k) => {
    if (added === null) return;
    const thick = Math.max(1.5, added * widest);
    const end = centre - half(k, 0.6) + Math.min(18, half(k, 0.6));
    const start = Math.max(0, centre - widest / 2 - Math.max(60, width * 0.2));
    const tip = Math.min(0.45, (thick * 0.6 + 8) / (end - start));
    const upper: Point[] = [];
    const lower: Point[] = [];
    for (let n = 0; n <= SAMPLES; n++) {
      const s = n / SAMPLES;
      const y = (k + 0.5 + 0.1 * (ease(s) - 0.5)) * row;
      const narrow = s > 1 - tip ? Math.sqrt(Math.max(0, (1 - s) / tip)) : 1;
      upper.push([start + (end - start) * s, y - (thick / 2) * narrow]);
      lower.push([start + (end - start) * s, y + (thick / 2) * narrow]);
    }
    marks.push({
      kind: "polygon",
      points: [...upper, ...lower.reverse()],
      fill: COLOURS[steps[k]!.kind],
      opacity: 0.92,
    });
  });
  return marks;
}

/** The stream with its labels and numbers, for saving. */
export function streamDrawing(steps: Step[], title: string, log: boolean): Drawing {
  const t = texts.residual;
  const [left, wide, row, top] = [190, 380, 84, 64];
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
