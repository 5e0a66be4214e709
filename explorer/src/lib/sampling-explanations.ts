/** The arithmetic of the sampling panel, computed in float64 from the logits of the page. */

import type { Explanation, Operand } from "./contract";
import { computed, constant, tensorAt } from "./explanation";
import { explanation, type Term } from "./terms";
import type { Known, Sampled, Settings } from "./sampling";
import { samplingTexts as t } from "./texts.views.en";

const MOST = 500; // terms of a list; the rest is one line

export interface SamplingStep {
  row: number;
  /** the tensor of the scores */
  tensor: string;
  known: Known;
  sampled: Sampled;
  settings: Settings;
  label: (k: number) => string;
}

/** The tensor of a trace with the top tokens only has a column for each rank. */
const score = (step: SamplingStep, k: number): Operand => {
  const at = step.tensor === "out.top.logprobs" ? k : step.known.ids[k]!;
  return tensorAt(step.tensor, [step.row, at], step.known.scores[k]!);
};

/** exp(z / T) / Σ exp(z / T); the largest is subtracted first, as in every softmax. */
export function explainShare(step: SamplingStep, k: number): Explanation {
  const { known, sampled, settings } = step;
  const { temperature } = settings;
  const term = (at: number): Term => ({
    operands: [score(step, at)],
    numbers: [known.scores[at]! / temperature, sampled.weights[at]!],
  });
  const size = known.ids.length;
  const listed = Array.from({ length: Math.min(size, MOST) }, (_, at) => term(at));
  if (k >= MOST) listed.push(term(k));
  const beyond = sampled.weights.reduce(
    (sum, weight, at) => sum + (at >= MOST && at !== k ? weight : 0),
    0,
  );
  const others = known.vocabulary - listed.length;
  if (others > 0)
    listed.push({
      operands: [
        constant(
          (size < known.vocabulary ? t.unknownRest : t.others)(others),
          beyond + sampled.rest.low,
        ),
      ],
      numbers: [NaN, beyond + sampled.rest.low],
    });
  const sum = listed.reduce((total, one) => total + one.numbers[1]!, 0);
  const made = explanation({
    name: t.names.softmax(step.label(k)),
    index: [step.row],
    place: step.label(k),
    operation: t.operations.softmax,
    formula: "exp(z / T − max) / Σ exp(z / T − max)",
    columns: ["z / T", "exp(z / T − max)"],
    terms: listed,
    steps: [
      { label: "T", value: temperature, operand: null },
      { label: "max", value: known.scores[0]! / temperature, operand: null },
      { label: "Σ", value: sum, operand: null },
      { label: "exp(z / T − max)", value: sampled.weights[k]!, operand: score(step, k) },
    ],
    result: sampled.weights[k]! / sum,
    value: sampled.shares[k]!.high,
  });
  made.rows.forEach((row, at) => (row.here = at === Math.min(k, MOST)));
  return made;
}

const shareOf = (step: SamplingStep, k: number): Operand =>
  computed(t.names.softmax(step.label(k)), step.sampled.shares[k]!.high, () =>
    explainShare(step, k),
  );

/** A sum of probabilities; more than some are one line. */
function sumOfShares(
  step: SamplingStep,
  count: number,
  name: string,
  operation: string,
  value: number,
): Explanation {
  const shares = step.sampled.shares;
  const terms: Term[] = Array.from({ length: Math.min(count, MOST) }, (_, k) => ({
    operands: [shareOf(step, k)],
    numbers: [shares[k]!.high],
  }));
  if (count > MOST) {
    const rest = shares.slice(MOST, count).reduce((sum, one) => sum + one.high, 0);
    terms.push({ operands: [constant(t.others(count - MOST), rest)], numbers: [rest] });
  }
  const result = terms.reduce((sum, one) => sum + one.numbers[0]!, 0);
  return explanation({
    name,
    index: [step.row],
    place: `p < ${step.settings.topP}`,
    operation,
    formula: "Σ softmax(z / T)",
    columns: [t.bars],
    terms,
    result,
    value,
  });
}

/** The probability of all tokens before one: it remains if this is below p. */
export const explainBefore = (step: SamplingStep, k: number): Explanation =>
  sumOfShares(
    step,
    k,
    t.names.before(step.label(k)),
    t.operations.cumulative,
    step.sampled.before[k]!.high,
  );

export const explainMass = (step: SamplingStep): Explanation =>
  sumOfShares(
    step,
    Math.min(step.sampled.kept.low, step.known.ids.length),
    t.names.mass,
    t.operations.mass,
    step.sampled.mass.high,
  );

/** softmax(z / T) divided by the sum over the tokens that remain. */
export function explainFinal(step: SamplingStep, k: number): Explanation {
  const { shares, mass, final } = step.sampled;
  const [own, sum] = [shares[k]!.high, mass.high];
  const result = final[k]!.high === 0 ? 0 : own / sum;
  const operands = [shareOf(step, k), computed(t.names.mass, sum, () => explainMass(step))];
  return explanation({
    name: t.names.renormalised(step.label(k)),
    index: [step.row],
    place: step.label(k),
    operation: t.operations.renormalised,
    formula: final[k]!.high === 0 ? "0: it is cut" : "softmax(z / T) / Σ of the tokens that remain",
    columns: [t.final],
    terms: [{ operands, numbers: [result] }],
    result,
    value: final[k]!.high,
  });
}
