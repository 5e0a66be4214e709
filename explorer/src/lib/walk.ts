/** A token's way through the stack, step by step: what each block adds, and what the vector then is. */

import type { Trace, Walk } from "./contract";
import type { Drawing, Mark } from "./drawing";
import { short } from "./numbers";
import type { Table } from "./save";
import { texts } from "./texts";

export type StepKind = "start" | "self" | "cross" | "ffn" | "position" | "state";

export interface Step {
  /** the sum it ends in, e.g. enc.0.resid1 */
  into: string;
  /** what is added, "" at the start */
  at: string;
  /** the sum it starts from */
  before: string;
  kind: StepKind;
  layer: string;
  label: string;
  /** of what is added; null at the start */
  norm: number | null;
  cosine: number | null;
  /** its length against that of the vector it is added to */
  share: number | null;
  /** of the sum */
  after: number;
}

export const COLOURS: Record<StepKind, string> = {
  start: "#009e73",
  position: "#009e73",
  self: "#56b4e9",
  cross: "#0072b2",
  ffn: "#e69f00",
  state: "#cc79a7",
};

/** The colours of a recurrent step's states. */
const STATES: Record<string, StepKind> = {
  joined: "self",
  h: "state",
  mixed: "ffn",
  readout: "ffn",
};

const kindOf = (name: string): StepKind =>
  /\.cross\b/.test(name)
    ? "cross"
    : /\.self\b/.test(name)
      ? "self"
      : /\.ffn\b/.test(name)
        ? "ffn"
        : /position/.test(name)
          ? "position"
          : "start";

export function stepsOf(walk: Walk, trace: Trace): Step[] {
  const t = texts.walk;
  const inputs = new Map(trace.tensors.map((tensor) => [tensor.name, tensor.inputs]));
  const norms = new Map(walk.residuals.map((residual) => [residual.at, residual.norm]));
  return walk.residuals.map((residual, k) => {
    const added = walk.contributions.find((one) => one.into === residual.at);
    const layer = /^(?:enc|dec)\.(\d+)\./.exec(residual.at)?.[1] ?? "";
    const before = inputs.get(residual.at)?.[0] ?? "";
    const length = norms.get(before) ?? walk.residuals[k - 1]?.norm;
    const label = walk.contributions.length
      ? t.start
      : (t.states[residual.at.replace(/\d+/, "0")] ?? residual.at);
    if (!added)
      return {
        into: residual.at,
        at: "",
        before,
        kind: STATES[residual.at.split(".").pop()!] ?? "start",
        layer,
        label,
        norm: null,
        cosine: null,
        share: null,
        after: residual.norm,
      };
    const kind = kindOf(added.at);
    return {
      into: residual.at,
      at: added.at,
      before,
      kind,
      layer,
      label: t.kinds[kind] ?? added.at,
      norm: added.norm,
      cosine: added.cosine,
      share: length ? added.norm / length : null,
      after: residual.norm,
    };
  });
}

/** How far a bar goes, 0 to 1; logarithmic bars start at a hundredth of the longest. */
export function reach(value: number, most: number, log: boolean): number {
  if (!(most > 0) || !(value > 0)) return 0;
  return log ? Math.max(0.01, 1 + Math.log10(value / most) / 2) : value / most;
}

export const tableOf = (steps: Step[], caption: string): Table => {
  const t = texts.walk;
  return {
    caption,
    columns: [t.after.replace(", norm", ""), t.step, t.added, t.share, t.cosine, t.after],
    rows: steps.map((step) => [
      step.into,
      [step.layer && t.layer(step.layer), step.label].filter(Boolean).join(", "),
      step.norm ?? "",
      step.share ?? "",
      step.cosine ?? "",
      step.after,
    ]),
  };
};

/** The chart, to be saved. */
export function drawn(steps: Step[], title: string, log: boolean): Drawing {
  const t = texts.walk;
  const most = Math.max(...steps.flatMap((step) => [step.norm ?? 0, step.after]));
  const [added, cosine, after, wide, tall] = [190, 400, 560, 150, 26];
  const ink = "var(--ink)";
  const soft = "var(--soft)";
  const marks: Mark[] = [
    { kind: "text", x: 16, y: 26, text: title, colour: ink, size: 14, bold: true },
    { kind: "text", x: added, y: 50, text: t.added, colour: soft, size: 11 },
    {
      kind: "text",
      x: cosine + 45,
      y: 50,
      text: t.cosine,
      colour: soft,
      size: 11,
      align: "middle",
    },
    { kind: "text", x: after, y: 50, text: t.after, colour: soft, size: 11 },
  ];
  steps.forEach((step, k) => {
    const y = 66 + k * tall;
    const bar = (x: number, share: number, fill: string, value: number): void =>
      void marks.push(
        { kind: "rect", x, y, width: share * wide, height: 12, fill, round: 2 },
        {
          kind: "text",
          x: x + share * wide + 6,
          y: y + 10,
          text: short(value, 2),
          colour: ink,
          size: 11,
        },
      );
    marks.push({
      kind: "text",
      x: 16,
      y: y + 10,
      text: [step.layer && t.layer(step.layer), step.label].filter(Boolean).join(" · "),
      colour: ink,
    });
    if (step.norm !== null) bar(added, reach(step.norm, most, log), COLOURS[step.kind], step.norm);
    if (step.cosine !== null) {
      const x = cosine + 45;
      marks.push({
        kind: "line",
        points: [
          [x, y - 3],
          [x, y + 15],
        ],
        colour: soft,
      });
      marks.push({
        kind: "rect",
        x: Math.min(x, x + 40 * step.cosine),
        y,
        width: Math.abs(40 * step.cosine),
        height: 12,
        fill: soft,
      });
      marks.push({
        kind: "text",
        x: x + 48,
        y: y + 10,
        text: short(step.cosine, 2),
        colour: ink,
        size: 11,
      });
    }
    bar(after, reach(step.after, most, log), "var(--accent)", step.after);
  });
  return {
    width: after + wide + 60,
    height: 76 + steps.length * tall,
    ground: "var(--panel)",
    marks,
  };
}
