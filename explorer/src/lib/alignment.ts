/** Alignment by attention: mean weights over heads, the links they give, and their drawing. */

import type { AttentionInfo, Explanation, Trace } from "./contract";
import { meanOf as derivedMean, tensorAt } from "./derived";
import type { Drawing, Mark } from "./drawing";
import { labelsOf } from "./labels";
import { slice, type Tensor } from "./safetensors";
import { texts } from "./texts";

/** A selectable set of heads whose mean weights give the alignment. */
export interface Choice {
  id: string;
  label: string;
  heads: { attention: string; head: number }[];
}

export interface Link {
  source: number;
  target: number;
  weight: number;
}

/** The mean of all cross-attention heads, of each layer, and each head alone. */
export function choicesOf(crosses: AttentionInfo[]): Choice[] {
  const t = texts.alignment;
  const heads = (one: AttentionInfo) =>
    Array.from({ length: one.heads }, (_, head) => ({ attention: one.name, head }));
  const all = crosses.flatMap(heads);
  if (!all.length) return [];
  if (all.length === 1) return [{ id: "", label: t.only, heads: all }];
  return [
    { id: "", label: t.mean(all.length), heads: all },
    ...crosses.flatMap((one) => [
      ...(one.heads > 1 && crosses.length > 1
        ? [{ id: one.name, label: t.layerMean(one.layer, one.heads), heads: heads(one) }]
        : []),
      ...heads(one).map((at) => ({
        id: `${at.attention}.${at.head}`,
        label: t.one(one.layer, at.head),
        heads: [at],
      })),
    ]),
  ];
}

/** The mean weights: target rows, source columns. */
export function meanOf(
  choice: Choice,
  weights: Map<string, Tensor>,
): { data: Float32Array; rows: number; cols: number } | null {
  const parts = choice.heads.flatMap(({ attention, head }) => {
    const tensor = weights.get(`${attention}.weights`);
    return tensor ? [slice(tensor, [head])] : [];
  });
  const [first] = parts;
  if (!first || parts.length < choice.heads.length) return null;
  const data = new Float32Array(first.rows * first.cols);
  for (let k = 0; k < data.length; k++) {
    let sum = 0;
    for (const part of parts) sum += part.data[part.offset + k]!;
    data[k] = sum / parts.length;
  }
  return { data, rows: first.rows, cols: first.cols };
}

/** How one mean weight is computed from the weights of its heads. */
export function explainMean(
  choice: Choice,
  weights: Map<string, Tensor>,
  i: number,
  j: number,
  targets: string[],
  sources: string[],
): Explanation | null {
  const operands = choice.heads.flatMap(({ attention, head }) => {
    const tensor = weights.get(`${attention}.weights`);
    if (!tensor) return [];
    const { data, offset, cols } = slice(tensor, [head]);
    return [tensorAt(tensor.name, [head, i, j], data[offset + i * cols + j] ?? NaN)];
  });
  const shown = meanOf(choice, weights);
  if (!shown || !operands.length) return null;
  const place = `${targets[i] ?? i}, ${sources[j] ?? j}`;
  const value = shown.data[i * shown.cols + j] ?? NaN;
  return derivedMean(texts.derived.alignment, [i, j], place, operands, value);
}

/** The best link of each row, or all above a threshold. End tokens (last row, column) have none. */
export function linksOf(
  matrix: { data: Float32Array; rows: number; cols: number },
  threshold: number | null,
): Link[] {
  const links: Link[] = [];
  for (let target = 0; target < matrix.rows - 1; target++) {
    const row = matrix.data.subarray(target * matrix.cols, (target + 1) * matrix.cols);
    const most = row.reduce((best, weight, at) => (weight > row[best]! ? at : best), 0);
    for (let source = 0; source < matrix.cols - 1; source++)
      if (threshold === null ? source === most : row[source]! >= threshold)
        links.push({ source, target, weight: row[source]! });
  }
  return links;
}

/** The Pharaoh format: "source-target" pairs separated by blanks. */
export const pairsOf = (links: Link[]): string =>
  links.map((link) => `${link.source}-${link.target}`).join(" ");

export const ROW = 28;
/** The curve of a link between the middles of its tokens, in a box of this width. */
export const curve = (link: Link, width: number, down = 0): string => {
  const [a, b] = [(link.source + 0.5) * ROW + down, (link.target + 0.5) * ROW + down];
  return `M0 ${a}C${width * 0.45} ${a} ${width * 0.55} ${b} ${width} ${b}`;
};
/** The point of a curve after a share of its way. */
export function pointOn(link: Link, width: number, down: number, share: number): [number, number] {
  const [a, b] = [(link.source + 0.5) * ROW + down, (link.target + 0.5) * ROW + down];
  const rest = 1 - share;
  const [p, q, r, s] = [rest ** 3, 3 * rest ** 2 * share, 3 * rest * share ** 2, share ** 3];
  return [width * (0.45 * q + 0.55 * r + s), (p + q) * a + (r + s) * b];
}
export const thickness = (weight: number): number => 0.75 + 4.5 * weight;

/** The links as a drawing, with their weights; those of overlaid heads in their colours. */
export function drawingOf(
  trace: Trace,
  links: Link[],
  title: string,
  overlays: { colour: string; links: Link[] }[] = [],
): Drawing {
  const t = texts.alignment;
  const [sources, targets] = [labelsOf(trace, "source"), labelsOf(trace, "target", true)];
  const [left, right, top] = [130, 430, 64];
  const y = (at: number): number => top + at * 20;
  const marks: Mark[] = [
    { kind: "text", x: 16, y: 24, text: title, colour: "var(--ink)", size: 14, bold: true },
    {
      kind: "text",
      x: left,
      y: 46,
      text: t.sourceTitle,
      colour: "var(--soft)",
      size: 11,
      align: "end",
    },
    { kind: "text", x: right, y: 46, text: t.targetTitle, colour: "var(--soft)", size: 11 },
    ...links.map((link): Mark => ({
      kind: "line",
      points: [
        [left + 8, y(link.source)],
        [right - 8, y(link.target)],
      ],
      colour: overlays.length ? "var(--line-strong)" : "var(--accent)",
      width: thickness(link.weight),
    })),
    ...overlays.flatMap(({ colour, links }, k) =>
      links.map((link): Mark => ({
        kind: "line",
        points: [
          [left + 8, y(link.source) + 3 * k],
          [right - 8, y(link.target) + 3 * k],
        ],
        colour,
        width: thickness(link.weight),
      })),
    ),
    ...sources.map((text, at): Mark => ({
      kind: "text",
      x: left,
      y: y(at) + 4,
      text: `${at} ${text}`,
      colour: "var(--ink)",
      align: "end",
    })),
    ...targets.map((text, at): Mark => {
      const mine = links
        .filter((link) => link.target === at)
        .map((link) => `${link.source}: ${link.weight.toFixed(3)}`);
      return {
        kind: "text",
        x: right,
        y: y(at) + 4,
        text: `${at} ${text}${mine.length ? `   (${mine.join(", ")})` : ""}`,
        colour: "var(--ink)",
      };
    }),
  ];
  return {
    width: 720,
    height: y(Math.max(sources.length, targets.length)) + 8,
    background: "var(--panel)",
    marks,
  };
}
