/** The measured pattern of a head: its explanation, and the head that the page opens on. */

import type { Explanation, HeadStats } from "./contract";
import { meanOf, type HeadWeights } from "./derived";
import { computed, constant, explainSum, step, tensorAt } from "./explanation";
import { real } from "./numbers";
import { texts } from "./texts";
import { headTexts } from "./texts.heads.en";

const t = headTexts.derived;

/** (share − uniform) / (1 − uniform) of one row of weights. */
function rowScore(head: HeadStats, weights: HeadWeights, query: number): Explanation {
  const [first, stop, uniform] = head.rows[query]!;
  const start = weights.offset + query * weights.cols;
  const row = weights.data.subarray(start + first, start + stop);
  return explainSum({
    name: t.row(head.pattern, weights.name),
    index: [weights.head, query],
    place: texts.derived.row(weights.head, query),
    operation: t.operation,
    formula: "(share − uniform) / (1 − uniform)",
    columns: [texts.derived.term],
    terms: Array.from(row, (weight, k) => [
      tensorAt(weights.name, [weights.head, query, first + k], weight),
    ]),
    numbers: (values) => values,
    finish: (share) => ({
      result: (share - uniform) / (1 - uniform),
      steps: [step(t.share, share), step(t.uniform, uniform, constant(t.uniform, uniform))],
    }),
  });
}

/** The score of a head's pattern: the mean of the rows that count. */
export function patternScore(head: HeadStats, weights: HeadWeights): Explanation {
  const operands = head.rows.flatMap((row, query) => {
    if (!row) return [];
    const made = rowScore(head, weights, query);
    const name = texts.derived.row(weights.head, query);
    return [computed(name, real(made.result), () => made)];
  });
  const name = t.head(head.pattern, weights.name);
  return meanOf(name, [weights.head], texts.derived.head(weights.head), operands, head.score);
}

/** Patterns that move along the text; heads that rest on one token or themselves teach less. */
const MOVING = ["previous token", "next token", "diagonal", "reverse diagonal"];

/** The head with the strongest pattern: one that moves along the text, if any is named. */
export function instructiveHead(heads: HeadStats[]): HeadStats | null {
  const moving = heads.filter((head) => head.named && MOVING.includes(head.pattern));
  return (moving.length ? moving : heads).reduce<HeadStats | null>(
    (best, head) => (best && best.score >= head.score ? best : head),
    null,
  );
}
