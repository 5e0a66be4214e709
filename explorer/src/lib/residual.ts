/** The residual stream of one token: the contribution of every block and the resulting vector. */

import type { Trace, ResidualStream } from "./contract";
import type { Drawing, Mark } from "./drawing";
import { short } from "./numbers";
import type { Table } from "./save";
import { texts } from "./texts";

export type StepKind = "start" | "self" | "cross" | "ffn" | "position" | "state";

export interface Step {
  /** the residual after the addition, e.g. enc.0.resid1 */
  into: string;
  /** the contribution, "" for the input */
  at: string;
  /** the residual before the addition */
  before: string;
  kind: StepKind;
  layer: string;
  label: string;
  /** norm of the contribution; null for the input */
  norm: number | null;
  cosine: number | null;
  /** norm of the contribution divided by that of the residual before it */
  share: number | null;
  /** norm of the residual after it */
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

/** Colours of the states of a recurrent step. */
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

export function stepsOf(stream: ResidualStream, trace: Trace): Step[] {
  const t = texts.residual;
  const inputs = new Map(trace.tensors.map((tensor) => [tensor.name, tensor.inputs]));
  const norms = new Map(stream.residuals.map((residual) => [residual.tensor, residual.norm]));
  return stream.residuals.map((residual, k) => {
    const added = stream.contributions.find((one) => one.into === residual.tensor);
    const layer = /^(?:enc|dec)\.(\d+)\./.exec(residual.tensor)?.[1] ?? "";
    const before = inputs.get(residual.tensor)?.[0] ?? "";
    const length = norms.get(before) ?? stream.residuals[k - 1]?.norm;
    const label = stream.contributions.length
      ? t.start
      : (t.states[residual.tensor.replace(/\d+/, "0")] ?? residual.tensor);
    if (!added)
      return {
        into: residual.tensor,
        at: "",
        before,
        kind: STATES[residual.tensor.split(".").pop()!] ?? "start",
        layer,
        label,
        norm: null,
        cosine: null,
        share: null,
        after: residual.norm,
      };
    const kind = kindOf(added.tensor);
    return {
      into: residual.tensor,
      at: added.tensor,
      before,
      kind,
      layer,
      label: t.kinds[kind] ?? added.tensor,
      norm: added.norm,
      cosine: added.cosine,
      share: length ? added.norm / length : null,
      after: residual.norm,
    };
  });
}

/** The length of a bar, 0 to 1; logarithmic bars start at a hundredth of the longest. */
export function reach(value: number, most: number, log: boolean): number {
  if (!(most > 0) || !(value > 0)) return 0;
  return log ? Math.max(0.01, 1 + Math.log10(value / most) / 2) : value / most;
}

export const tableOf = (steps: Step[], caption: string): Table => {
  const t = texts.residual;
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

/** The norms of the states as a drawing. */
export function drawingOf(steps: Step[], title: string, log: boolean): Drawing {
  const t = texts.residual;
  const most = Math.max(...steps.map((step) => step.after));
  const [left, wide, tall] = [230, 300, 26];
  const ink = "var(--ink)";
  const soft = "var(--soft)";
  const marks: Mark[] = [
    { kind: "text", x: 16, y: 26, text: title, colour: ink, size: 14, bold: true },
    { kind: "text", x: left, y: 50, text: t.norm, colour: soft, size: 11 },
  ];
  steps.forEach((step, k) => {
    const y = 66 + k * tall;
    const length = reach(step.after, most, log) * wide;
    const value = short(step.after, 2);
    marks.push(
      { kind: "text", x: 16, y: y + 10, text: step.label, colour: ink },
      { kind: "rect", x: left, y, width: length, height: 12, fill: "var(--accent)", round: 2 },
      { kind: "text", x: left + length + 6, y: y + 10, text: value, colour: ink, size: 11 },
    );
  });
  return {
    width: left + wide + 60,
    height: 76 + steps.length * tall,
    background: "var(--panel)",
    marks,
  };
}
