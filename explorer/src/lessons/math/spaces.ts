/** Lesson 4: three words in the input, attention and output space. */

import { apply, dot, softmax, weightedSum, type Vector } from "./attention";

export const WORDS = ["cat", "sees", "mouse"];
export const START: Vector[] = [
  [1.6, 0.4],
  [0.9, 1.1],
  [0.1, 1.5],
];

/** A matrix that turns the plane. */
export function rotation(degrees: number): Vector[] {
  const turn = (degrees * Math.PI) / 180;
  return [
    [Math.cos(turn), -Math.sin(turn)],
    [Math.sin(turn), Math.cos(turn)],
  ];
}

/** Everything attention computes for these words and angles of W_Q, W_K and W_V. */
export function attention(words: readonly Vector[], [q, k, v]: readonly number[]) {
  const [queries, keys, values] = [q!, k!, v!].map((angle) =>
    words.map((word) => apply(rotation(angle), word)),
  ) as [number[][], number[][], number[][]];
  const scores = queries.map((query) => keys.map((key) => dot(query, key) / Math.SQRT2));
  const weights = scores.map(softmax);
  return {
    queries,
    keys,
    values,
    scores,
    weights,
    outputs: weights.map((w) => weightedSum(w, values)),
  };
}

/** The largest difference between the two scores of a pair. */
export const asymmetry = (scores: readonly Vector[]): number =>
  Math.max(...scores.flatMap((row, i) => row.map((s, j) => Math.abs(s - scores[j]![i]!))));

export const best = (row: Vector): number => row.indexOf(Math.max(...row));
