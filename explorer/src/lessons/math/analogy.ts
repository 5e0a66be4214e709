/** Lesson 2: four words in five dimensions, and the plane of the analogy. */

import { add, cosine, dot, norm, scale, subtract, type Vector } from "./attention";

export const WORDS = ["king", "queen", "man", "woman"];
export const START: Vector[] = [
  [0.9, 0.8, 0.7, 0.1, 0.2],
  [0.9, 0.8, 0.7, 0.1, 0.7],
  [0.8, 0.6, 0.6, 0.2, 0.1],
  [0.8, 0.6, 0.6, 0.2, 0.6],
];
export const PAIRS: [number, number][] = [
  [0, 1],
  [2, 3],
  [0, 2],
  [1, 3],
];
const ACROSS = [0, 0, 0, 0, 1];
const step = [...subtract(START[0]!, START[2]!).slice(0, 4), 0];
const UP = scale(step, 1 / norm(step));
const ORIGIN = START[2]!; // man

/** The place of a vector on the plane. */
export const onPlane = (vector: Vector): [number, number] => {
  const from = subtract(vector, ORIGIN);
  return [dot(from, ACROSS), dot(from, UP)];
};
/** A vector moved to a place on the plane; what lies off the plane stays. */
export function movedTo(vector: Vector, x: number, y: number): number[] {
  const [oldX, oldY] = onPlane(vector);
  return add(vector, add(scale(ACROSS, x - oldX), scale(UP, y - oldY)));
}

/** king − man + woman */
export const target = (all: readonly Vector[]): number[] =>
  add(subtract(all[0]!, all[2]!), all[3]!);

/** The nearest word by cosine, among some. */
export function nearest(all: readonly Vector[], among: number[]): { word: number; cosine: number } {
  const wanted = target(all);
  return among
    .map((word) => ({ word, cosine: cosine(all[word]!, wanted) }))
    .reduce((best, one) => (one.cosine > best.cosine ? one : best));
}
