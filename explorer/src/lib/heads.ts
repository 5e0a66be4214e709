/** The All heads page: sorting, and a group of heads as a drawing. */

import type { HeadStats } from "./contract";
import type { HeadWeights } from "./derived";
import type { Drawing, Mark } from "./drawing";
import { fixed, short } from "./numbers";
import { headColour, headInk, weightsKind } from "./palette";
import { paintPixels } from "./picture";
import { slice, type Tensor } from "./safetensors";
import { app } from "./state.svelte";
import { texts } from "./texts";
import { headTexts } from "./texts.heads.en";

export const SORTS = ["layer", "entropy", "distance", "effect"] as const;
export type Sort = (typeof SORTS)[number];

export const idOf = (head: HeadStats): string => `${head.attention}.${head.head}`;

/** By layer, or by a statistic: focused, local and strong heads first, missing values last. */
export function sorted(heads: HeadStats[], by: Sort, reversed: boolean): HeadStats[] {
  const turn = (by === "effect" ? -1 : 1) * (reversed ? -1 : 1);
  const place = (a: HeadStats, b: HeadStats): number => a.layer - b.layer || a.head - b.head;
  return [...heads].sort((a, b) => {
    if (by === "layer") return turn * place(a, b);
    const [x, y] = [a[by], b[by]];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || place(a, b);
    return turn * (x - y) || place(a, b);
  });
}

/** The weights of a head in the current trace; null if another trace has been made meanwhile. */
export async function weightsOfHead(head: HeadStats): Promise<HeadWeights | null> {
  const [trace, name] = [app.trace, `${head.attention}.weights`];
  const tensor = trace && (await app.data.tensors(trace, [name])).get(name);
  if (!tensor || app.trace !== trace) return null;
  return { name, head: head.head, ...slice(tensor, [head.head]) };
}

export type Fact = "entropy" | "distance" | "effect";

/** The statistics below a head's thumbnail. */
export function facts(head: HeadStats): [string, string, Fact][] {
  const t = texts.heads;
  const rows: [string, string, Fact][] = [
    [t.sorts.entropy, `${short(head.entropy, 2)} ${t.bits}`, "entropy"],
  ];
  if (head.distance !== null)
    rows.push([t.sorts.distance, `${short(head.distance, 2)} ${t.tokens}`, "distance"]);
  if (head.effect !== null) rows.push([t.effect, short(head.effect, 2), "effect"]);
  return rows;
}

/** A group of heads with their statistics as a drawing. */
export function drawingOf(
  title: string,
  heads: HeadStats[],
  weights: Map<string, Tensor>,
  dark: boolean,
): Drawing {
  const [size, gap, columns] = [150, 22, Math.min(4, Math.max(1, heads.length))];
  const first = slice(weights.values().next().value!);
  const tall = Math.round(size * Math.max(0.25, Math.min(1, first.rows / first.cols)));
  const step = tall + 91;
  const marks: Mark[] = [
    { kind: "text", x: gap, y: 26, text: title, colour: "var(--ink)", size: 15, bold: true },
  ];
  heads.forEach((head, k) => {
    const [x, y] = [gap + (k % columns) * (size + gap), 44 + Math.floor(k / columns) * step];
    const tensor = weights.get(`${head.attention}.weights`);
    if (tensor) {
      const canvas = document.createElement("canvas");
      paintPixels(
        canvas,
        { ...slice(tensor, [head.head]), rowStride: slice(tensor).cols, colStride: 1 },
        weightsKind(tensor.data),
        dark,
      );
      marks.push({ kind: "image", x, y, width: size, height: tall, canvas });
    }
    marks.push({
      kind: "rect",
      x,
      y: y + tall + 7,
      width: 18,
      height: 16,
      fill: headColour(head.head),
      round: 4,
    });
    marks.push({
      kind: "text",
      x: x + 9,
      y: y + tall + 19,
      text: String(head.head),
      colour: headInk(head.head),
      size: 11,
      align: "middle",
      bold: true,
    });
    marks.push({
      kind: "text",
      x: x + 25,
      y: y + tall + 19,
      text: head.attention,
      colour: "var(--ink)",
    });
    const name = `${headTexts.named(head.pattern, head.named)} ${fixed(head.score)}`;
    const lines = [name, ...facts(head).map(([label, value]) => `${label} ${value}`)];
    lines.forEach((text, row) =>
      marks.push({
        kind: "text",
        x,
        y: y + tall + 36 + 13 * row,
        text,
        colour: row ? "var(--soft)" : "var(--ink)",
        size: 11,
      }),
    );
  });
  return {
    width: gap + columns * (size + gap),
    height: 54 + Math.ceil(heads.length / columns) * step,
    background: "var(--panel)",
    marks,
  };
}
