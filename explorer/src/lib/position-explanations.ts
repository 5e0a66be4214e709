/** The arithmetic of position encodings, recomputed in float64 from their formulas. */

import type { Explanation } from "./contract";
import { computed, constant } from "./explanation";
import { explanation, type Term } from "./terms";
import { positionTexts as t } from "./texts.views.en";
import type { PositionEncoding, PositionEncodings } from "./views-contract";

const nameOf = (encoding: PositionEncoding, what: string): string =>
  t.name(t.names[encoding.name] ?? encoding.name, what);

/** A single operation on constants, with its steps. */
function single(
  parts: Pick<Explanation, "name" | "place" | "operation" | "formula">,
  operands: [string, number][],
  steps: [string, number][],
  result: number,
  value: number,
  paper: string,
): Explanation {
  const terms: Term[] = [
    { operands: operands.map(([name, number]) => constant(name, number)), numbers: [result] },
  ];
  const made = explanation({
    ...parts,
    columns: [t.value],
    terms,
    steps: steps.map(([label, number]) => ({ label, value: number, operand: null })),
    result,
    value,
  });
  return { ...made, paper };
}

/** The frequency of a dimension and whether it holds the sine (of a rotation: the first of a pair). */
function pairOf(encoding: PositionEncoding, dimension: number, size: number): [number, boolean] {
  if (encoding.order === "halves") {
    const half = Math.ceil(size / 2);
    return [dimension % half, dimension < half];
  }
  return [Math.floor(dimension / 2), dimension % 2 === 0];
}

/** A number of a position vector. */
export function explainValue(
  { width, dim }: PositionEncodings,
  encoding: PositionEncoding,
  position: number,
  dimension: number,
): Explanation {
  const value = encoding.values![position]![dimension]!;
  const place = t.at(position, dimension);
  const { paper, frequencies } = encoding;
  const name = nameOf(encoding, t.value);
  if (!frequencies)
    return single(
      { name, place, operation: t.operations.lookup, formula: "P[position, dimension]" },
      [["P", value]],
      [],
      value,
      value,
      paper,
    );
  const rotary = encoding.rotated !== undefined;
  const size = rotary ? encoding.rotated! : width;
  if (rotary && dimension >= size)
    return single(
      { name, place, operation: t.operations.rotation, formula: `1: above ${size} of ${dim}` },
      [["1", 1]],
      [],
      1,
      value,
      paper,
    );
  const [pair, first] = pairOf(encoding, dimension, size);
  const frequency = frequencies[pair]!;
  const angle = position * frequency;
  const result = rotary
    ? Math.cos(angle) + (first ? -1 : 1) * Math.sin(angle)
    : first
      ? Math.sin(angle)
      : Math.cos(angle);
  const formula = rotary
    ? first
      ? "1 · cos(angle) − 1 · sin(angle)"
      : "1 · cos(angle) + 1 · sin(angle)"
    : first
      ? "sin(position · frequency)"
      : "cos(position · frequency)";
  return single(
    { name, place, operation: rotary ? t.operations.rotation : t.operations.wave, formula },
    [
      [t.position, position],
      [t.frequency, frequency],
    ],
    [
      [t.angle, angle],
      ["cos", Math.cos(angle)],
      ["sin", Math.sin(angle)],
    ],
    result,
    value,
    paper,
  );
}

/** A number of a matrix of scores. */
export function explainScore(
  all: PositionEncodings,
  encoding: PositionEncoding,
  head: number,
  query: number,
  key: number,
): Explanation {
  const value = encoding.scores[Math.min(head, encoding.scores.length - 1)]![query]![key]!;
  const place = t.pair(query, key);
  const { paper, slopes, index, scale = 1 } = encoding;
  const name = nameOf(encoding, t.score);
  if (slopes) {
    const distance = Math.abs(query - key);
    return single(
      { name, place, operation: t.operations.penalty, formula: "−slope · |query − key|" },
      [
        [t.slope, slopes[head]!],
        [t.distance, distance],
      ],
      [],
      distance ? -slopes[head]! * distance : 0,
      value,
      paper,
    );
  }
  if (index)
    return single(
      { name, place, operation: t.operations.bias, formula: "R[index of key − query] · scale" },
      [
        [`R[${index[query]![key]}]`, value / scale],
        ["scale", scale],
      ],
      [["key − query", key - query]],
      (value / scale) * scale,
      value,
      paper,
    );
  const size = encoding.rotated === undefined ? all.width : all.dim;
  const [one, other] = [encoding.values![query]!, encoding.values![key]!];
  const operand = (position: number, k: number, number: number) =>
    computed(t.at(position, k), number, () => explainValue(all, encoding, position, k));
  const terms = one.map((x, k) => ({
    operands: [operand(query, k, x), operand(key, k, other[k]!)],
    numbers: [x * other[k]!],
  }));
  const sum = terms.reduce((total, term) => total + term.numbers[0]!, 0);
  const made = explanation({
    name,
    place,
    operation: t.operations.match,
    formula: `Σ a · b / √${size}`,
    columns: ["a · b"],
    terms,
    steps: [
      { label: "Σ", value: sum, operand: null },
      { label: `√${size}`, value: Math.sqrt(size), operand: null },
    ],
    result: sum / Math.sqrt(size),
    value,
  });
  return { ...made, paper };
}

/** Which learned number a pair of positions reads: the clipped or bucketed distance. */
export function explainIndex(
  encoding: PositionEncoding,
  query: number,
  key: number,
  shown: number,
): Explanation {
  const operands: [string, number][] = [
    ["key", key],
    ["query", query],
  ];
  const bucketed = encoding.name === "t5";
  return single(
    {
      name: nameOf(encoding, t.index),
      place: t.pair(query, key),
      operation: t.operations.index,
      formula: bucketed ? "bucket(key − query)" : "key − query",
    },
    operands,
    [["key − query", key - query]],
    bucketed ? shown : key - query,
    shown,
    encoding.paper,
  );
}
