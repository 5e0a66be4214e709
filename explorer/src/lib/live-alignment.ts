/** The picture of an alignment between two lines or columns of tokens: places and curves. */

import { FONT } from "./svg";

export interface Place {
  x: number;
  y: number;
  width: number;
}

const HEIGHT = 30;
const GAP = 8;
const PADDING = 18;
const BETWEEN = 130; // pixels between the two lines
const ROW = 36;
const SIZE = 16; // pixels of the font

let ruler: CanvasRenderingContext2D | null = null;
const widths = new Map<string, number>();
function textWidth(text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    ruler ??= document.createElement("canvas").getContext("2d");
    if (ruler) ruler.font = `500 ${SIZE}px ${FONT}`;
    width = Math.max(34, Math.ceil((ruler?.measureText(text).width ?? 10 * text.length) + PADDING));
    if (widths.size > 2000) widths.clear();
    widths.set(text, width);
  }
  return width;
}

/** The width of a line of tokens. */
export const widthOf = (tokens: string[]): number =>
  tokens.reduce((sum, token) => sum + textWidth(token) + GAP, -GAP);

/** Two centred lines, source on top; or two columns, source on the left. */
export function placeTokens(
  sources: string[],
  targets: string[],
  width: number,
  across: boolean,
): { sources: Place[]; targets: Place[]; width: number; height: number } {
  if (across) {
    const line = (tokens: string[], y: number): Place[] => {
      let x = (width - widthOf(tokens)) / 2;
      return tokens.map((token) => {
        const place = { x, y, width: textWidth(token) };
        x += place.width + GAP;
        return place;
      });
    };
    const below = 2 + HEIGHT + BETWEEN;
    return {
      sources: line(sources, 2),
      targets: line(targets, below),
      width,
      height: below + HEIGHT + 2,
    };
  }
  const most = Math.max(60, Math.floor(width * 0.36));
  const column = (tokens: string[], right: boolean): Place[] =>
    tokens.map((token, at) => {
      const wide = Math.min(most, textWidth(token));
      return { x: right ? width - wide - 2 : 2, y: 2 + at * ROW, width: wide };
    });
  return {
    sources: column(sources, false),
    targets: column(targets, true),
    width,
    height: 4 + Math.max(sources.length, targets.length) * ROW,
  };
}

/** The curve from a source token to a target token. */
export function shapeOf(from: Place, to: Place, across: boolean): string {
  if (across) {
    const [a, b] = [from.x + from.width / 2, to.x + to.width / 2];
    const [top, bottom] = [from.y + HEIGHT, to.y];
    const bend = (bottom - top) / 2;
    return `M${a} ${top}C${a} ${top + bend} ${b} ${bottom - bend} ${b} ${bottom}`;
  }
  const [a, b] = [from.x + from.width, to.x];
  const [left, right] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
  const bend = (b - a) / 2;
  return `M${a} ${left}C${a + bend} ${left} ${b - bend} ${right} ${b} ${right}`;
}

export const thickness = (weight: number): number => 1 + 9 * weight;

/** The largest weights of a row: up to three sources with their weights. */
export function bestOf(
  matrix: { data: Float32Array; cols: number },
  row: number,
): [number, number][] {
  return Array.from(
    matrix.data.subarray(row * matrix.cols, (row + 1) * matrix.cols),
    (weight, at): [number, number] => [at, weight],
  )
    .sort((a, b) => b[1] - a[1])
    .slice(0, 3);
}
