/** Explanations of single numbers of pages: shares of variance, scores of tokens, other tokens. */

import type { EmbeddingSpace, Explanation, Operand } from "./contract";
import { sumOf } from "./derived";
import { computed, constant, explainSum, step } from "./explanation";
import { pieceText } from "./labels";
import { explainFinal, explainShare, type SamplingStep } from "./sampling-explanations";
import { texts } from "./texts";
import { arithmeticTexts as t } from "./texts.arithmetic.en";

const MOST = 200; // terms of a list; the rest is one line

/** Σ ‖E − mean‖² over the points of a plane. */
const varianceOf = (space: EmbeddingSpace): Explanation =>
  explainSum({
    name: t.variance,
    place: t.points(space.points.length),
    operation: t.varianceOperation,
    formula: t.variance,
    columns: [texts.derived.term],
    terms: space.points.map((one) => [constant(t.distance(pieceText(one.text)), one.spread)]),
    numbers: (x) => x,
    most: MOST,
  });

/** The share of the variance that lies along a principal component. */
export function varianceShare(space: EmbeddingSpace, axis: 0 | 1): Explanation {
  const variance = varianceOf(space);
  const total = Number(variance.result);
  return explainSum({
    name: t.share(axis + 1),
    place: t.points(space.points.length),
    operation: t.shareOperation,
    formula: t.shareFormula,
    paper: "Pearson 1901",
    columns: [t.squared],
    terms: space.points.map((one) => [
      constant(t.coordinate(pieceText(one.text)), axis ? one.y : one.x),
    ]),
    numbers: ([x]) => [x! * x!],
    finish: (sum) => ({
      result: total ? sum / total : 0,
      steps: [
        step("Σ", sum),
        step(
          "÷",
          total,
          computed(t.variance, total, () => variance),
        ),
      ],
    }),
    value: space.explained_variance[axis],
    most: MOST,
  });
}

/** The shares of both components together. */
export function bothShares(space: EmbeddingSpace): Explanation {
  const shares = ([0, 1] as const).map((axis) => {
    const made = varianceShare(space, axis);
    return computed(made.name, Number(made.value), () => made);
  });
  const value = shares.reduce((sum, one) => sum + Number(one.value), 0);
  const made = sumOf(t.bothShares, t.points(space.points.length), shares, value);
  return { ...made, formula: "first + second" };
}

/** The score of a token in a unigram tokenizer: an entry of its table, or that of unknown text. */
export function tokenScore(
  token: { id: number | null; text: string },
  score: number,
  unknown: number | null,
): Explanation {
  const label = pieceText(token.text);
  const missing = score === unknown;
  const terms: Operand[][] = missing
    ? [[constant(t.least, score + 10)], [constant(t.below, -10)]]
    : [[constant(t.entry(token.id), score)]];
  return explainSum({
    name: t.score(label),
    place: `“${label}”`,
    operation: t.scoreOperation,
    formula: missing ? t.unknownFormula : t.scoreFormula,
    paper: "Kudo 2018",
    columns: ["log p"],
    terms,
    numbers: (x) => x,
    value: score,
  });
}

/** What the tokens that are not listed have together: all minus the listed ones. */
export function otherTokens(
  sampling: SamplingStep,
  listed: number[],
  others: string,
  kind: "shares" | "final",
  cut: boolean,
): Explanation {
  const [explain, numbers] =
    kind === "shares"
      ? [explainShare, sampling.sampled.shares]
      : [explainFinal, sampling.sampled.final];
  const tokens = listed.map((k) => {
    const made = (): Explanation => explain(sampling, k);
    return [computed(made().name, numbers[k]!.high, made)];
  });
  const rest = listed.reduce((sum, k) => sum - numbers[k]!.high, 1);
  return explainSum({
    name: (kind === "shares" ? t.othersShare : t.othersFinal)(others),
    index: [sampling.row],
    place: others,
    operation: t.othersOperation,
    formula: cut ? t.othersCut : t.othersFormula,
    columns: [texts.derived.term],
    terms: [[constant(t.all, 1)], ...tokens],
    numbers: ([x], at) => [at ? -x! : x!],
    finish: (sum) => ({ result: cut ? 0 : Math.max(0, sum) }),
    value: cut ? 0 : Math.max(0, rest),
  });
}
