/** Heads whose links are drawn over an alignment, each in its colour. */

import { linksOf, type Link } from "./alignment";
import type { AttentionInfo } from "./contract";
import { headColour, headInk } from "./palette";
import { slice, type Tensor } from "./safetensors";

/** The pinned heads of the All heads page: at most this many. */
export const MOST_PINS = 4;
/** Heads of one colour in two layers differ in their dashes. */
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

export interface Overlay {
  id: string;
  attention: string;
  layer: number;
  head: number;
  colour: string;
  /** the colour of a text on it */
  ink: string;
  dash: string;
  links: Link[];
}

/** The colour of a head's lines: black ones are white on a dark page. */
function lineColour(head: number, dark: boolean): { colour: string; ink: string } {
  const colour = headColour(head);
  if (dark && colour === "#000000") return { colour: "#ffffff", ink: "#000000" };
  return { colour, ink: headInk(head) };
}

/** The links of the pinned heads of cross-attentions. */
export function overlaysOf(
  pins: string[],
  crosses: AttentionInfo[],
  weights: Map<string, Tensor>,
  threshold: number | null,
  dark: boolean,
): Overlay[] {
  const found: Overlay[] = [];
  for (const id of pins) {
    const cut = id.lastIndexOf(".");
    const [attention, head] = [id.slice(0, cut), Number(id.slice(cut + 1))];
    const info = crosses.find((one) => one.name === attention);
    const tensor = weights.get(`${attention}.weights`);
    if (!info || !tensor || !(head < info.heads)) continue;
    const { data, offset, rows, cols } = slice(tensor, [head]);
    const matrix = { data: data.subarray(offset, offset + rows * cols), rows, cols };
    const { colour, ink } = lineColour(head, dark);
    const same = found.filter((one) => one.colour === colour).length;
    const dash = DASHES[same % DASHES.length]!;
    const links = linksOf(matrix, threshold);
    found.push({ id, attention, layer: info.layer, head, colour, ink, dash, links });
  }
  return found;
}

/** The pins with one more or one less; the oldest gives way. */
export function togglePin(pins: string[], id: string): string[] {
  if (pins.includes(id)) return pins.filter((one) => one !== id);
  return [...pins, id].slice(-MOST_PINS);
}
