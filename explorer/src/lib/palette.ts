/** Colours, from the file that matplotlib uses too. */

import palette from "../../../src/regard/plots/palette.json";

export type Kind = "weights" | "signed" | "masked";
export type Triple = [number, number, number];

export const WEIGHTS = palette.weights as Triple[];
export const SIGNED = { light: palette.signed as Triple[], dark: palette.signed_dark as Triple[] };
export const MASKED = { light: palette.masked, dark: palette.masked_dark };
const HEADS = Object.entries(palette.heads).map(([name, colour]) => ({ name, colour }));

/** Weights use the scale 0…1; those of an unusual normaliser may lie outside and are signed. */
export function weightsKind(data: ArrayLike<number>): Kind {
  let kind = kinds.get(data);
  if (!kind) {
    kind = "weights";
    for (let k = 0; k < data.length; k++)
      if (!(data[k]! >= 0 && data[k]! <= 1.0001)) {
        kind = "signed";
        break;
      }
    kinds.set(data, kind);
  }
  return kind;
}
/** Each head of a tensor asks for the kind of all of them, in every frame of a film. */
const kinds = new WeakMap<ArrayLike<number>, Kind>();

/** The kind of a tensor by its name and values. */
export function kindOf(name: string, data: ArrayLike<number>): Kind {
  if (name.endsWith(".weights")) return weightsKind(data);
  return name.endsWith(".masked") || name.endsWith(".tempered") ? "masked" : "signed";
}

/** Whether a number is that of a masked pair: a score of −∞, or a weight that was marked as −0. */
export const isMasked = (kind: Kind, value: number): boolean =>
  kind === "weights" ? Object.is(value, -0) : value === -Infinity;

export const css = ([r, g, b]: Triple): string => `rgb(${r},${g},${b})`;

/** The colour ramp of a kind; weights use the same ramp in both themes. */
export function ramp(kind: Kind, dark: boolean): Triple[] {
  return kind === "weights" ? WEIGHTS : dark ? SIGNED.dark : SIGNED.light;
}

/** The colours of a ramp as CSS, and the ink on each of them. */
export function rampStyles(steps: Triple[]): { fills: string[]; inks: string[] } {
  let styles = stylesOf.get(steps);
  if (!styles) stylesOf.set(steps, (styles = { fills: steps.map(css), inks: steps.map(inkOn) }));
  return styles;
}
const stylesOf = new Map<Triple[], { fills: string[]; inks: string[] }>();

/** The level of a value: weights cover 0…1, signed values −limit…limit. */
export function level(kind: Kind, value: number, limit: number, levels: number): number {
  const share = kind === "weights" ? value : limit > 0 ? (value / limit + 1) / 2 : 0.5;
  return Math.max(0, Math.min(levels - 1, Math.floor(share * levels)));
}

export function colour(kind: Kind, value: number, limit: number, dark: boolean): Triple {
  const steps = ramp(kind, dark);
  return steps[level(kind, value, limit, steps.length)] ?? [0, 0, 0];
}

/** Black or white, whichever has the higher contrast (at least 4.5 to 1). */
export function inkOn([r, g, b]: Triple): string {
  const [red, green, blue] = [r, g, b].map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue! > 0.179 ? "#000000" : "#ffffff";
}

/** The colour of a head (Okabe and Ito), repeated after eight. Always show the number, too. */
export const headColour = (head: number): string => HEADS[head % HEADS.length]!.colour;
export const headInk = (head: number): string => {
  const hex = headColour(head);
  return inkOn([1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)) as Triple);
};

/** The largest finite magnitude of a slice: the limit of a signed scale. */
export function limitOf(data: Float32Array, offset = 0, count = data.length - offset): number {
  let limit = 0;
  for (let k = offset; k < offset + count; k++) {
    const size = Math.abs(data[k]!);
    if (size > limit && size !== Infinity) limit = size;
  }
  return limit;
}
