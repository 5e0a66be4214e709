/** A matrix as a picture: one layout, painted on a canvas or written as SVG. */

import {
  colour,
  css,
  inkOn,
  level,
  limitOf,
  MASKED,
  ramp,
  type Kind,
  type Triple,
} from "./palette";
import { tiny } from "./numbers";
import { xml } from "./save";

export interface Matrix {
  data: Float32Array;
  rows: number;
  cols: number;
  offset: number;
  rowStride: number;
  colStride: number;
}

export interface Look {
  kind: Kind;
  limit: number;
  dark: boolean;
  rowLabels: string[];
  colLabels: string[];
  rowTitle: string;
  colTitle: string;
  cellWidth: number;
  cellHeight: number;
  ink: string;
  soft: string;
}

export interface Layout {
  left: number;
  top: number;
  width: number;
  height: number;
  /** a hair between cells that are large enough */
  gap: number;
  upright: boolean;
  numbers: boolean;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const LABEL = 12;
const TITLE = 11;
const LONGEST = 14;

export const valueAt = (m: Matrix, i: number, j: number): number =>
  m.data[m.offset + i * m.rowStride + j * m.colStride] ?? NaN;

const cut = (text: string): string =>
  text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;

const widths = new Map<string, number>();
let ruler: CanvasRenderingContext2D | null = null;
function widest(labels: string[]): number {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!ruler) return 0;
  const key = labels.join("\n");
  const known = widths.get(key);
  if (known !== undefined) return known;
  ruler.font = `${LABEL}px ${FONT}`;
  let width = 0;
  for (const label of labels) width = Math.max(width, ruler.measureText(cut(label)).width);
  if (widths.size > 200) widths.clear();
  widths.set(key, Math.ceil(width));
  return Math.ceil(width);
}

/** The room the labels on the left take, which does not depend on the size of a cell. */
export const leftRoom = (look: Pick<Look, "rowLabels" | "rowTitle">): number =>
  (look.rowTitle ? TITLE + 8 : 0) + (look.rowLabels.length ? widest(look.rowLabels) + 8 : 0);

/** Where everything lies, in CSS pixels. */
export function layoutOf(m: Matrix, look: Look): Layout {
  const wide = widest(look.colLabels);
  const upright = wide + 3 > look.cellWidth;
  const labels = look.colLabels.length ? (upright ? wide : LABEL + 2) + 6 : 0;
  const left = leftRoom(look);
  const top = (look.colTitle ? TITLE + 9 : 0) + labels;
  return {
    left,
    top,
    width: left + m.cols * look.cellWidth,
    height: top + m.rows * look.cellHeight,
    gap: Math.min(look.cellWidth, look.cellHeight) >= 14 ? 1 : 0,
    upright,
    numbers: look.cellWidth >= 34 && look.cellHeight >= 22,
  };
}

interface Label {
  text: string;
  x: number;
  y: number;
  size: number;
  align: "start" | "middle" | "end";
  turned: boolean;
  soft: boolean;
}

/** Every word of a picture: titles, and as many labels as have room. */
function labelsOf(m: Matrix, look: Look, layout: Layout): Label[] {
  const labels: Label[] = [];
  const word = (
    text: string,
    x: number,
    y: number,
    size: number,
    align: Label["align"],
    turned = false,
    soft = false,
  ): void => void labels.push({ text, x, y, size, align, turned, soft });
  if (look.colTitle) word(look.colTitle, layout.left, TITLE, TITLE, "start", false, true);
  if (look.rowTitle) word(look.rowTitle, TITLE, layout.top, TITLE, "end", true, true);
  const everyRow = Math.ceil((LABEL + 1) / look.cellHeight);
  const everyCol = Math.ceil((layout.upright ? LABEL + 1 : 1) / look.cellWidth);
  look.rowLabels.forEach((text, i) => {
    if (i % everyRow === 0 && i < m.rows)
      word(
        cut(text),
        layout.left - 6,
        layout.top + (i + 0.5) * look.cellHeight + LABEL * 0.35,
        LABEL,
        "end",
      );
  });
  look.colLabels.forEach((text, j) => {
    if (j % everyCol !== 0 || j >= m.cols) return;
    const middle = layout.left + (j + 0.5) * look.cellWidth;
    if (layout.upright)
      word(cut(text), middle + LABEL * 0.35, layout.top - 5, LABEL, "start", true);
    else word(cut(text), middle, layout.top - 6, LABEL, "middle");
  });
  return labels;
}

/** Paints a matrix; the canvas gets `scale` device pixels to a CSS pixel. */
export function paint(
  canvas: HTMLCanvasElement,
  m: Matrix,
  look: Look,
  scale: number,
  ground = "",
): Layout {
  const layout = layoutOf(m, look);
  canvas.width = Math.max(1, Math.round(layout.width * scale));
  canvas.height = Math.max(1, Math.round(layout.height * scale));
  const pen = canvas.getContext("2d");
  if (!pen) return layout;
  pen.scale(scale, scale);
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, layout.width, layout.height);
  }
  paintCells(pen, m, look, layout);
  for (const label of labelsOf(m, look, layout)) {
    pen.save();
    pen.font = `${label.size}px ${FONT}`;
    pen.fillStyle = label.soft ? look.soft : look.ink;
    pen.textAlign = label.align === "middle" ? "center" : label.align;
    pen.translate(label.x, label.y);
    if (label.turned) pen.rotate(-Math.PI / 2);
    pen.fillText(label.text, 0, 0);
    pen.restore();
  }
  return layout;
}

/** One pixel a cell: the fast way to many cells. */
export function stamp(
  canvas: HTMLCanvasElement,
  m: Matrix,
  kind: Kind,
  dark: boolean,
  limit?: number,
): void {
  canvas.width = Math.max(1, m.cols);
  canvas.height = Math.max(1, m.rows);
  const pen = canvas.getContext("2d");
  if (!pen || !m.rows || !m.cols) return;
  const steps = ramp(kind, dark);
  const most = limit ?? (kind === "weights" ? 1 : limitOf(m.data, m.offset, m.rows * m.cols));
  const word = ([r, g, b]: Triple): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const words = steps.map(word);
  const line = parseInt(MASKED[dark ? "dark" : "light"].line.slice(1), 16);
  const masked = word([line >> 16, (line >> 8) & 255, line & 255]);
  const image = pen.createImageData(m.cols, m.rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0, k = 0; i < m.rows; i++)
    for (let j = 0; j < m.cols; j++) {
      const value = valueAt(m, i, j);
      pixels[k++] = value === -Infinity ? masked : words[level(kind, value, most, steps.length)]!;
    }
  pen.putImageData(image, 0, 0);
}

function paintCells(pen: CanvasRenderingContext2D, m: Matrix, look: Look, layout: Layout): void {
  const { cellWidth, cellHeight } = look;
  const steps = ramp(look.kind, look.dark);
  if (layout.gap === 0) {
    const cells = document.createElement("canvas");
    stamp(cells, m, look.kind, look.dark, look.limit);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, layout.left, layout.top, m.cols * cellWidth, m.rows * cellHeight);
  } else {
    const styles = steps.map(css);
    pen.textAlign = "center";
    pen.font = `${Math.min(12, Math.floor(cellWidth / 3.4))}px ${FONT}`;
    for (let i = 0; i < m.rows; i++)
      for (let j = 0; j < m.cols; j++) {
        const value = valueAt(m, i, j);
        if (value === -Infinity) continue;
        const [x, y] = [layout.left + j * cellWidth, layout.top + i * cellHeight];
        const at = level(look.kind, value, look.limit, steps.length);
        pen.fillStyle = styles[at]!;
        pen.fillRect(x, y, cellWidth - 1, cellHeight - 1);
        if (!layout.numbers) continue;
        pen.fillStyle = inkOn(steps[at]!);
        pen.fillText(tiny(value), x + (cellWidth - 1) / 2, y + cellHeight / 2 + 4);
      }
  }
  if (look.kind !== "weights") hatch(pen, m, look, layout);
}

/** All masked cells at once: one clip, one face, one set of lines that meet across cells. */
function hatch(pen: CanvasRenderingContext2D, m: Matrix, look: Look, layout: Layout): void {
  const { cellWidth, cellHeight } = look;
  const masked = MASKED[look.dark ? "dark" : "light"];
  const words: [number, number][] = [];
  pen.save();
  pen.beginPath();
  for (let i = 0; i < m.rows; i++) {
    const y = layout.top + i * cellHeight;
    for (let j = 0; j < m.cols; j++) {
      if (valueAt(m, i, j) !== -Infinity) continue;
      const from = j;
      // Cells without a hair between them are one stretch.
      while (layout.gap === 0 && j + 1 < m.cols && valueAt(m, i, j + 1) === -Infinity) j++;
      const x = layout.left + from * cellWidth;
      pen.rect(x, y, (j + 1 - from) * cellWidth - layout.gap, cellHeight - layout.gap);
      if (layout.numbers) words.push([x + (cellWidth - 1) / 2, y + (cellHeight - 1) / 2]);
    }
  }
  pen.clip();
  pen.fillStyle = masked.face;
  pen.fillRect(layout.left, layout.top, layout.width, layout.height);
  pen.strokeStyle = masked.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (
    let at = Math.ceil((layout.left + layout.top) / 5) * 5;
    at < layout.width + layout.height;
    at += 5
  ) {
    pen.moveTo(at - layout.top, layout.top);
    pen.lineTo(at - layout.height, layout.height);
  }
  pen.stroke();
  pen.textAlign = "center";
  for (const [x, y] of words) {
    pen.fillStyle = masked.face;
    pen.fillRect(x - 11, y - 8, 22, 16);
    pen.fillStyle = masked.ink;
    pen.fillText(masked.text, x, y + 4);
  }
  pen.restore();
}

/** The same picture as SVG. */
export function svg(m: Matrix, look: Look, title: string, ground: string): string {
  const layout = layoutOf(m, look);
  const masked = MASKED[look.dark ? "dark" : "light"];
  const out: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${layout.width} ${layout.height}" width="${layout.width}" height="${layout.height}" font-family='${FONT}'>`,
    `<title>${xml(title)}</title>`,
    `<defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="${masked.face}"/><line x1="0" y1="0" x2="0" y2="5" stroke="${masked.line}"/></pattern></defs>`,
    `<rect width="100%" height="100%" fill="${ground}"/>`,
  ];
  for (let i = 0; i < m.rows; i++) {
    for (let j = 0; j < m.cols; j++) {
      const value = valueAt(m, i, j);
      const x = layout.left + j * look.cellWidth;
      const y = layout.top + i * look.cellHeight;
      const tone = colour(look.kind, value, look.limit, look.dark);
      const fill = value === -Infinity ? "url(#masked)" : css(tone);
      const [w, h] = [look.cellWidth - layout.gap, look.cellHeight - layout.gap];
      out.push(
        `<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="${fill}"><title>${value}</title></rect>`,
      );
      if (layout.numbers) {
        const ink = value === -Infinity ? masked.ink : inkOn(tone);
        out.push(
          `<text x="${x + w / 2}" y="${y + h / 2 + 4}" font-size="11" text-anchor="middle" fill="${ink}">${tiny(value)}</text>`,
        );
      }
    }
  }
  for (const label of labelsOf(m, look, layout)) {
    const turn = label.turned ? ` transform="rotate(-90 ${label.x} ${label.y})"` : "";
    const ink = label.soft ? look.soft : look.ink;
    out.push(
      `<text x="${label.x}" y="${label.y}" font-size="${label.size}" text-anchor="${label.align}" fill="${ink}"${turn}>${xml(label.text)}</text>`,
    );
  }
  return [...out, "</svg>"].join("\n");
}
