/** Lesson 7: the score of every pair of positions that comes from the positions alone. */

import measured from "../lengths.json";
import { dot } from "./attention";
import { sinusoidal } from "./order";

export const ENCODINGS = ["sinusoidal", "learned", "distance", "rotary", "alibi"] as const;
export type Encoding = (typeof ENCODINGS)[number];

export const COUNT = 20;
const WIDTH = 64;
const HEADS = 4;
const HEAD_WIDTH = WIDTH / HEADS;

/** q · R(j − i) q / √d for a vector q of ones, rotated in pairs (Su et al. 2021). */
function rotary(i: number, j: number): number {
  let sum = 0;
  for (let k = 0; k < HEAD_WIDTH; k += 2) sum += 2 * Math.cos((j - i) / 10000 ** (k / HEAD_WIDTH));
  return sum / Math.sqrt(HEAD_WIDTH);
}

/** Minus the slope of the first head times the distance (Press et al. 2022). */
const alibi = (i: number, j: number): number => -(2 ** (-8 / HEADS)) * Math.abs(i - j);

/** A matrix, row by row. Tables of learned encodings come from a trained model. */
export function positionScores(encoding: Encoding): Float32Array {
  const trained: Partial<Record<Encoding, number[][]>> = measured.position_scores;
  const table = trained[encoding];
  const score = (i: number, j: number): number =>
    table
      ? table[i]![j]!
      : encoding === "rotary"
        ? rotary(i, j)
        : encoding === "alibi"
          ? alibi(i, j)
          : dot(sinusoidal(i, WIDTH), sinusoidal(j, WIDTH)) / Math.sqrt(WIDTH);
  return Float32Array.from({ length: COUNT * COUNT }, (_, k) =>
    score(Math.floor(k / COUNT), k % COUNT),
  );
}
