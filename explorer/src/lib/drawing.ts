/** A drawing as a list of marks: written as SVG, painted on a canvas, or shown by a component. */

import { xml } from "./save";

export type Mark =
  | {
      kind: "line";
      points: [number, number][];
      colour: string;
      width?: number;
      dashed?: boolean;
      arrow?: boolean;
    }
  | { kind: "circle"; x: number; y: number; r: number; fill: string; stroke?: string }
  | {
      kind: "rect";
      x: number;
      y: number;
      width: number;
      height: number;
      fill: string;
      stroke?: string;
      round?: number;
    }
  | {
      kind: "text";
      x: number;
      y: number;
      text: string;
      colour: string;
      size?: number;
      align?: "start" | "middle" | "end";
      turned?: boolean;
      bold?: boolean;
    }
  | {
      kind: "image";
      x: number;
      y: number;
      width: number;
      height: number;
      canvas: HTMLCanvasElement;
    };

export interface Drawing {
  width: number;
  height: number;
  ground: string;
  marks: Mark[];
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

/** Colours may be the page's own, "var(--ink)": a drawing that leaves the page takes their values along. */
function tone(colour: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(colour)?.[1];
  return name ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : colour;
}
function plain(mark: Mark): Mark {
  const found = Object.entries(mark).map(([key, value]) => [
    key,
    typeof value === "string" && value.startsWith("var(") ? tone(value) : value,
  ]);
  return Object.fromEntries(found) as Mark;
}

/** The head of an arrow at the end of a line: its three corners. */
export function arrowHead(points: [number, number][], size = 5): [number, number][] {
  const [x, y] = points[points.length - 1]!;
  const [a, b] = points[points.length - 2] ?? [x - 1, y];
  const turn = Math.atan2(y - b, x - a);
  const corner = (by: number): [number, number] => [
    x - size * 1.5 * Math.cos(turn + by),
    y - size * 1.5 * Math.sin(turn + by),
  ];
  return [[x, y], corner(0.42), corner(-0.42)];
}

const listed = (points: [number, number][]): string =>
  points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

function written(mark: Mark): string {
  switch (mark.kind) {
    case "line": {
      const dash = mark.dashed ? ' stroke-dasharray="4 3"' : "";
      const head = mark.arrow
        ? `<polygon points="${listed(arrowHead(mark.points))}" fill="${mark.colour}"/>`
        : "";
      return `<polyline points="${listed(mark.points)}" fill="none" stroke="${mark.colour}" stroke-width="${mark.width ?? 1}"${dash}/>${head}`;
    }
    case "circle":
      return `<circle cx="${mark.x}" cy="${mark.y}" r="${mark.r}" fill="${mark.fill}" stroke="${mark.stroke ?? "none"}"/>`;
    case "rect":
      return `<rect x="${mark.x}" y="${mark.y}" width="${mark.width}" height="${mark.height}" rx="${mark.round ?? 0}" fill="${mark.fill}" stroke="${mark.stroke ?? "none"}"/>`;
    case "text": {
      const turn = mark.turned ? ` transform="rotate(-90 ${mark.x} ${mark.y})"` : "";
      const weight = mark.bold ? ' font-weight="600"' : "";
      return `<text x="${mark.x}" y="${mark.y}" font-size="${mark.size ?? 12}" text-anchor="${mark.align ?? "start"}" fill="${mark.colour}"${weight}${turn}>${xml(mark.text)}</text>`;
    }
    case "image":
      return `<image x="${mark.x}" y="${mark.y}" width="${mark.width}" height="${mark.height}" preserveAspectRatio="none" image-rendering="pixelated" href="${mark.canvas.toDataURL()}"/>`;
  }
}

export function svgOf(drawing: Drawing, title: string): string {
  const { width, height, ground, marks } = drawing;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family='${FONT}'>`,
    `<title>${xml(title)}</title>`,
    `<rect width="100%" height="100%" fill="${tone(ground)}"/>`,
    ...marks.map((mark) => written(plain(mark))),
    "</svg>",
  ].join("\n");
}

function trace(pen: CanvasRenderingContext2D, points: [number, number][]): void {
  pen.beginPath();
  points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
}

function painted(pen: CanvasRenderingContext2D, mark: Mark): void {
  pen.save();
  if (mark.kind === "line") {
    pen.strokeStyle = pen.fillStyle = mark.colour;
    pen.lineWidth = mark.width ?? 1;
    if (mark.dashed) pen.setLineDash([4, 3]);
    trace(pen, mark.points);
    pen.stroke();
    if (mark.arrow) {
      trace(pen, arrowHead(mark.points));
      pen.fill();
    }
  } else if (mark.kind === "text") {
    pen.font = `${mark.bold ? "600 " : ""}${mark.size ?? 12}px ${FONT}`;
    pen.fillStyle = mark.colour;
    pen.textAlign = mark.align === "middle" ? "center" : (mark.align ?? "start");
    pen.translate(mark.x, mark.y);
    if (mark.turned) pen.rotate(-Math.PI / 2);
    pen.fillText(mark.text, 0, 0);
  } else if (mark.kind === "image") {
    pen.imageSmoothingEnabled = false;
    pen.drawImage(mark.canvas, mark.x, mark.y, mark.width, mark.height);
  } else {
    pen.beginPath();
    if (mark.kind === "circle") pen.arc(mark.x, mark.y, mark.r, 0, 2 * Math.PI);
    else pen.roundRect(mark.x, mark.y, mark.width, mark.height, mark.round ?? 0);
    pen.fillStyle = mark.fill;
    pen.fill();
    if (mark.stroke) {
      pen.strokeStyle = mark.stroke;
      pen.stroke();
    }
  }
  pen.restore();
}

export function canvasOf(drawing: Drawing, scale = 3): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(drawing.width * scale);
  canvas.height = Math.round(drawing.height * scale);
  const pen = canvas.getContext("2d");
  if (!pen) return canvas;
  pen.scale(scale, scale);
  pen.fillStyle = tone(drawing.ground);
  pen.fillRect(0, 0, drawing.width, drawing.height);
  for (const mark of drawing.marks) painted(pen, plain(mark));
  return canvas;
}

/** The page's own colours by name, for a drawing that leaves the page. */
export const inks = (names: string[]): Record<string, string> =>
  Object.fromEntries(names.map((name) => [name, tone(`var(--${name})`)]));
