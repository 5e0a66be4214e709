/** A drawing as a list of marks, rendered as SVG, on a canvas or by a component. */

import { element, escapeXml, FONT, svgDocument } from "./svg";

export type Mark =
  | {
      kind: "line";
      points: [number, number][];
      colour: string;
      width?: number;
      dashed?: boolean;
      arrow?: boolean;
    }
  | { kind: "polygon"; points: [number, number][]; fill: string; opacity?: number }
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
      rotated?: boolean;
      bold?: boolean;
      /** the colour of an outline that keeps it readable above points */
      halo?: string;
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
  background: string;
  marks: Mark[];
}

/** Resolves a CSS variable such as "var(--ink)", for drawings that leave the page. */
function colourValue(colour: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(colour)?.[1];
  return name ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : colour;
}
function withColours(mark: Mark): Mark {
  const found = Object.entries(mark).map(([key, value]) => [
    key,
    typeof value === "string" && value.startsWith("var(") ? colourValue(value) : value,
  ]);
  return Object.fromEntries(found) as Mark;
}

/** The three corners of an arrow head at the end of a line. */
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

const pointList = (points: [number, number][]): string =>
  points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

function svgMark(mark: Mark): string {
  switch (mark.kind) {
    case "line": {
      const head = { points: pointList(arrowHead(mark.points)), fill: mark.colour };
      const line = element("polyline", {
        points: pointList(mark.points),
        fill: "none",
        stroke: mark.colour,
        "stroke-width": mark.width ?? 1,
        "stroke-dasharray": mark.dashed ? "4 3" : undefined,
      });
      return mark.arrow ? line + element("polygon", head) : line;
    }
    case "polygon": {
      const { fill, opacity = 1 } = mark;
      return element("polygon", { points: pointList(mark.points), fill, "fill-opacity": opacity });
    }
    case "circle": {
      const { x: cx, y: cy, r, fill, stroke = "none" } = mark;
      return element("circle", { cx, cy, r, fill, stroke });
    }
    case "rect": {
      const { x, y, width, height, round: rx = 0, fill, stroke = "none" } = mark;
      return element("rect", { x, y, width, height, rx, fill, stroke });
    }
    case "text": {
      const { x, y, align, colour, size, bold, rotated } = mark;
      const attributes = {
        x,
        y,
        "font-size": size ?? 12,
        "text-anchor": align ?? "start",
        fill: colour,
        "font-weight": bold ? 600 : undefined,
        transform: rotated ? `rotate(-90 ${x} ${y})` : undefined,
        stroke: mark.halo,
        "stroke-width": mark.halo ? 3 : undefined,
        "paint-order": mark.halo ? "stroke" : undefined,
      };
      return element("text", attributes, escapeXml(mark.text));
    }
    case "image": {
      const { x, y, width, height, canvas } = mark;
      const style = { preserveAspectRatio: "none", "image-rendering": "pixelated" };
      return element("image", { x, y, width, height, ...style, href: canvas.toDataURL() });
    }
  }
}

export function svgOf(drawing: Drawing, title: string): string {
  const { width, height, background, marks } = drawing;
  const content = marks.map((mark) => svgMark(withColours(mark)));
  return svgDocument(width, height, title, colourValue(background), content);
}

function tracePath(pen: CanvasRenderingContext2D, points: [number, number][]): void {
  pen.beginPath();
  points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
}

function paintMark(pen: CanvasRenderingContext2D, mark: Mark): void {
  pen.save();
  if (mark.kind === "line") {
    pen.strokeStyle = pen.fillStyle = mark.colour;
    pen.lineWidth = mark.width ?? 1;
    if (mark.dashed) pen.setLineDash([4, 3]);
    tracePath(pen, mark.points);
    pen.stroke();
    if (mark.arrow) {
      tracePath(pen, arrowHead(mark.points));
      pen.fill();
    }
  } else if (mark.kind === "polygon") {
    pen.fillStyle = mark.fill;
    pen.globalAlpha = mark.opacity ?? 1;
    tracePath(pen, mark.points);
    pen.fill();
  } else if (mark.kind === "text") {
    pen.font = `${mark.bold ? "600 " : ""}${mark.size ?? 12}px ${FONT}`;
    pen.fillStyle = mark.colour;
    pen.textAlign = mark.align === "middle" ? "center" : (mark.align ?? "start");
    pen.translate(mark.x, mark.y);
    if (mark.rotated) pen.rotate(-Math.PI / 2);
    if (mark.halo) {
      pen.strokeStyle = mark.halo;
      pen.lineWidth = 3;
      pen.strokeText(mark.text, 0, 0);
    }
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
  pen.fillStyle = colourValue(drawing.background);
  pen.fillRect(0, 0, drawing.width, drawing.height);
  for (const mark of drawing.marks) paintMark(pen, withColours(mark));
  return canvas;
}

/** CSS colours of the page by name, for drawings that leave the page. */
export const pageColours = (names: string[]): Record<string, string> =>
  Object.fromEntries(names.map((name) => [name, colourValue(`var(--${name})`)]));
