/** A matrix as a picture: one layout, painted on a canvas or written as SVG. */

import {
  colour,
  css,
  inkOn,
  isMasked,
  level,
  limitOf,
  MASKED,
  ramp,
  rampStyles,
  type Kind,
  type Triple,
} from "./palette";
import { tiny } from "./numbers";
import { element, escapeXml, FONT, svgDocument } from "./svg";

export interface Matrix {
  data: Float32Array;
  rows: number;
  cols: number;
  offset: number;
  rowStride: number;
  colStride: number;
}

export interface HeatmapStyle {
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
  /** pixels between cells, if they are large enough */
  gap: number;
  upright: boolean;
  numbers: boolean;
}

const LABEL = 12;
const TITLE = 11;
const MAX_LABEL = 14;

export const valueAt = (m: Matrix, i: number, j: number): number =>
  m.data[m.offset + i * m.rowStride + j * m.colStride] ?? NaN;

const truncate = (text: string): string =>
  text.length > MAX_LABEL ? `${text.slice(0, MAX_LABEL - 1)}…` : text;

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
  for (const label of labels) width = Math.max(width, ruler.measureText(truncate(label)).width);
  if (widths.size > 200) widths.clear();
  widths.set(key, Math.ceil(width));
  return Math.ceil(width);
}

/** The width of the row labels; it does not depend on the cell size. */
export const leftMargin = (style: Pick<HeatmapStyle, "rowLabels" | "rowTitle">): number =>
  (style.rowTitle ? TITLE + 8 : 0) + (style.rowLabels.length ? widest(style.rowLabels) + 8 : 0);

/** The layout in CSS pixels. */
export function layoutOf(m: Matrix, style: HeatmapStyle): Layout {
  const wide = widest(style.colLabels);
  const upright = wide + 3 > style.cellWidth;
  const labels = style.colLabels.length ? (upright ? wide : LABEL + 2) + 6 : 0;
  const left = leftMargin(style);
  const top = (style.colTitle ? TITLE + 9 : 0) + labels;
  return {
    left,
    top,
    width: left + m.cols * style.cellWidth,
    height: top + m.rows * style.cellHeight,
    gap: Math.min(style.cellWidth, style.cellHeight) >= 14 ? 1 : 0,
    upright,
    numbers: style.cellWidth >= 34 && style.cellHeight >= 22,
  };
}

interface Label {
  text: string;
  x: number;
  y: number;
  size: number;
  align: "start" | "middle" | "end";
  rotated: boolean;
  soft: boolean;
}

/** Titles, and as many labels as fit. */
function labelsOf(m: Matrix, style: HeatmapStyle, layout: Layout): Label[] {
  const labels: Label[] = [];
  const word = (
    text: string,
    x: number,
    y: number,
    size: number,
    align: Label["align"],
    rotated = false,
    soft = false,
  ): void => void labels.push({ text, x, y, size, align, rotated, soft });
  if (style.colTitle) word(style.colTitle, layout.left, TITLE, TITLE, "start", false, true);
  if (style.rowTitle) word(style.rowTitle, TITLE, layout.top, TITLE, "end", true, true);
  const everyRow = Math.ceil((LABEL + 1) / style.cellHeight);
  const everyCol = Math.ceil((layout.upright ? LABEL + 1 : 1) / style.cellWidth);
  style.rowLabels.forEach((text, i) => {
    if (i % everyRow === 0 && i < m.rows)
      word(
        truncate(text),
        layout.left - 6,
        layout.top + (i + 0.5) * style.cellHeight + LABEL * 0.35,
        LABEL,
        "end",
      );
  });
  style.colLabels.forEach((text, j) => {
    if (j % everyCol !== 0 || j >= m.cols) return;
    const middle = layout.left + (j + 0.5) * style.cellWidth;
    if (layout.upright)
      word(truncate(text), middle + LABEL * 0.35, layout.top - 5, LABEL, "start", true);
    else word(truncate(text), middle, layout.top - 6, LABEL, "middle");
  });
  return labels;
}

/** Paints a matrix with `scale` device pixels per CSS pixel. */
export function paint(
  canvas: HTMLCanvasElement,
  m: Matrix,
  style: HeatmapStyle,
  scale: number,
  background = "",
): Layout {
  const layout = layoutOf(m, style);
  const pen = canvas.getContext("2d");
  if (!pen) return layout;
  resize(canvas, pen, Math.round(layout.width * scale), Math.round(layout.height * scale));
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  if (background) {
    pen.fillStyle = background;
    pen.fillRect(0, 0, layout.width, layout.height);
  }
  paintCells(pen, m, style, layout);
  for (const label of labelsOf(m, style, layout)) {
    pen.save();
    pen.font = `${label.size}px ${FONT}`;
    pen.fillStyle = label.soft ? style.soft : style.ink;
    pen.textAlign = label.align === "middle" ? "center" : label.align;
    pen.translate(label.x, label.y);
    if (label.rotated) pen.rotate(-Math.PI / 2);
    pen.fillText(label.text, 0, 0);
    pen.restore();
  }
  return layout;
}

/** An empty canvas of a size. One that has it is cleared: a new bitmap takes longer. */
function resize(
  canvas: HTMLCanvasElement,
  pen: CanvasRenderingContext2D,
  width: number,
  height: number,
): void {
  if (canvas.width === Math.max(1, width) && canvas.height === Math.max(1, height)) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    return;
  }
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
}

/** Paints one pixel per cell, which is fast for many cells. */
export function paintPixels(
  canvas: HTMLCanvasElement,
  m: Matrix,
  kind: Kind,
  dark: boolean,
  limit?: number,
): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  resize(canvas, pen, m.cols, m.rows);
  if (!m.rows || !m.cols) return;
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
      pixels[k++] = isMasked(kind, value) ? masked : words[level(kind, value, most, steps.length)]!;
    }
  pen.putImageData(image, 0, 0);
}

/** one pixel for each cell of the matrix that is painted */
let cells: HTMLCanvasElement | null = null;

function paintCells(
  pen: CanvasRenderingContext2D,
  m: Matrix,
  style: HeatmapStyle,
  layout: Layout,
): void {
  const { cellWidth, cellHeight } = style;
  const steps = ramp(style.kind, style.dark);
  if (layout.gap === 0) {
    cells ??= document.createElement("canvas");
    paintPixels(cells, m, style.kind, style.dark, style.limit);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, layout.left, layout.top, m.cols * cellWidth, m.rows * cellHeight);
  } else {
    const { fills, inks } = rampStyles(steps);
    pen.textAlign = "center";
    pen.font = `${Math.min(12, Math.floor(cellWidth / 3.4))}px ${FONT}`;
    for (let i = 0; i < m.rows; i++)
      for (let j = 0; j < m.cols; j++) {
        const value = valueAt(m, i, j);
        if (isMasked(style.kind, value)) continue;
        const [x, y] = [layout.left + j * cellWidth, layout.top + i * cellHeight];
        const at = level(style.kind, value, style.limit, steps.length);
        pen.fillStyle = fills[at]!;
        pen.fillRect(x, y, cellWidth - 1, cellHeight - 1);
        if (!layout.numbers) continue;
        pen.fillStyle = inks[at]!;
        pen.fillText(tiny(value), x + (cellWidth - 1) / 2, y + cellHeight / 2 + 4);
      }
  }
  if (hasMasked(m, style.kind)) hatch(pen, m, style, layout);
}

/** Whether any cell is masked. */
export function hasMasked(m: Matrix, kind: Kind): boolean {
  for (let i = 0; i < m.rows; i++)
    for (let j = 0; j < m.cols; j++) if (isMasked(kind, valueAt(m, i, j))) return true;
  return false;
}

/** Hatches all masked cells with one clip path, so that the lines continue across cells. */
function hatch(
  pen: CanvasRenderingContext2D,
  m: Matrix,
  style: HeatmapStyle,
  layout: Layout,
): void {
  const { cellWidth, cellHeight } = style;
  const masked = MASKED[style.dark ? "dark" : "light"];
  const words: [number, number][] = [];
  pen.save();
  pen.beginPath();
  for (let i = 0; i < m.rows; i++) {
    const y = layout.top + i * cellHeight;
    for (let j = 0; j < m.cols; j++) {
      if (!isMasked(style.kind, valueAt(m, i, j))) continue;
      const from = j;
      // Adjacent cells without a gap form one rectangle.
      while (layout.gap === 0 && j + 1 < m.cols && isMasked(style.kind, valueAt(m, i, j + 1))) j++;
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
    pen.fillText(style.kind === "weights" ? "0" : masked.text, x, y + 4);
  }
  pen.restore();
}

/** The same picture as SVG. */
export function svg(m: Matrix, style: HeatmapStyle, title: string, background: string): string {
  const layout = layoutOf(m, style);
  const masked = MASKED[style.dark ? "dark" : "light"];
  const cells: string[] = [hatchPattern(masked.face, masked.line)];
  for (let i = 0; i < m.rows; i++) {
    for (let j = 0; j < m.cols; j++) {
      const value = valueAt(m, i, j);
      const x = layout.left + j * style.cellWidth;
      const y = layout.top + i * style.cellHeight;
      const shade = colour(style.kind, value, style.limit, style.dark);
      const hidden = isMasked(style.kind, value);
      const fill = hidden ? "url(#masked)" : css(shade);
      const width = style.cellWidth - layout.gap;
      const height = style.cellHeight - layout.gap;
      cells.push(element("rect", { x, y, width, height, fill }, `<title>${value}</title>`));
      if (!layout.numbers) continue;
      const middle = { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle" };
      const ink = hidden ? masked.ink : inkOn(shade);
      const text = hidden && value === 0 ? "0" : tiny(value);
      cells.push(element("text", { ...middle, "font-size": 11, fill: ink }, text));
    }
  }
  const labels = labelsOf(m, style, layout).map(({ text, x, y, size, align, rotated, soft }) => {
    const attributes = {
      x,
      y,
      "font-size": size,
      "text-anchor": align,
      fill: soft ? style.soft : style.ink,
      transform: rotated ? `rotate(-90 ${x} ${y})` : undefined,
    };
    return element("text", attributes, escapeXml(text));
  });
  return svgDocument(layout.width, layout.height, title, background, [...cells, ...labels]);
}

function hatchPattern(face: string, line: string): string {
  const attributes = {
    id: "masked",
    width: 5,
    height: 5,
    patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)",
  };
  const ground = element("rect", { width: 5, height: 5, fill: face });
  const stroke = element("line", { x1: 0, y1: 0, x2: 0, y2: 5, stroke: line });
  return `<defs>${element("pattern", attributes, ground + stroke)}</defs>`;
}
