// One page, one classic script, one style sheet, with names that never change: the server sends them as they are,
// and the offline export puts them into a single file that opens from disk.
// The lessons are a second script (vite.lessons.config.js), built before this one.
import { existsSync, readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";
import { SHARED } from "./vite.lessons.config.js";

/** A module script cannot be opened from disk, so the built page ends with a classic one. */
const classic = {
  name: "classic-script",
  apply: "build",
  transformIndexHtml: {
    order: "post",
    handler: (html) =>
      html
        .replace(/\s*<script type="module"[^>]*><\/script>/, "")
        .replace(/<link rel="stylesheet" crossorigin/, '<link rel="stylesheet"')
        .replace("</body>", '  <script src="./explorer.js"></script>\n  </body>'),
  },
};

/** What the lessons' script uses of this one: `virtual:shared`, by module and name. */
const shared = {
  name: "shared-with-lessons",
  resolveId: (id) => (id === "virtual:shared" ? "\0shared" : null),
  load(id) {
    if (id !== "\0shared") return null;
    const names = existsSync(SHARED) ? JSON.parse(readFileSync(SHARED, "utf8")) : {};
    const modules = Object.entries(names).map(([module, bindings], k) => ({
      from: module.startsWith("svelte") ? module : `/src/${module}`,
      imports: bindings.map((name, n) => `${name} as s${k}_${n}`).join(", "),
      entry: `${JSON.stringify(module)}: { __esModule: true, ${bindings.map((name, n) => `${name}: s${k}_${n}`)}}`,
    }));
    return [
      ...modules.map(({ imports, from }) => `import { ${imports} } from "${from}";`),
      `export default { ${modules.map(({ entry }) => entry).join(", ")} };`,
    ].join("\n");
  },
};

export default defineConfig({
  base: "./",
  plugins: [svelte(), shared, classic],
  server: { host: "127.0.0.1", proxy: { "/api": process.env.REGARD ?? "http://127.0.0.1:8765" } },
  build: {
    outDir: "../src/regard/explore/static",
    emptyOutDir: false,
    target: "es2022",
    sourcemap: false,
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { format: "iife", entryFileNames: "explorer.js", assetFileNames: "explorer[extname]" },
    },
  },
});
