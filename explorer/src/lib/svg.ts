/** Writing SVG as text: elements, whole documents, and the font that canvases use too. */

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

type Attributes = Record<string, string | number | undefined>;

export const escapeXml = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");

/** An element; attributes that are undefined are left out. `content` is markup, not text. */
export function element(name: string, attributes: Attributes, content = ""): string {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${escapeXml(String(value))}"`)
    .join("");
  return content ? `<${name}${written}>${content}</${name}>` : `<${name}${written}/>`;
}

/** A document with a title and a background. */
export function svgDocument(
  width: number,
  height: number,
  title: string,
  background: string,
  content: string[],
): string {
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    "font-family": FONT,
  };
  const face = element("rect", { width: "100%", height: "100%", fill: background });
  const lines = [`<title>${escapeXml(title)}</title>`, face, ...content];
  return element("svg", attributes, `\n${lines.join("\n")}\n`);
}
