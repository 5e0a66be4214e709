// The lessons: a second classic script and style sheet, loaded when a lesson is opened. Everything
// outside src/lessons (Svelte, the state, components) comes from the page's own script through
// `window.regardExplorer`; SHARED lists the names that vite.config.js must put there.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const SOURCE = path.resolve("src");
const LESSONS = path.join(SOURCE, "lessons") + path.sep;
export const SHARED = path.resolve("node_modules/.cache/shared-names.json");

const used = new Map(); // module → names
const outside = (id, importer) => {
  if (/^svelte($|\/)/.test(id)) return id;
  if (!importer?.startsWith(LESSONS) || !id.startsWith(".")) return null;
  const found = path.resolve(path.dirname(importer), id.replace(/\?.*/, ""));
  if (found.startsWith(LESSONS) || found.endsWith(".json")) return null;
  return path.relative(SOURCE, found).replaceAll("\\", "/");
};

/** Makes modules outside src/lessons external. */
const external = {
  name: "shared-with-the-page",
  enforce: "pre",
  resolveId(id, importer) {
    const module = outside(id, importer);
    return module && { id: module, external: true };
  },
};

/** Collects the names that compiled modules import from outside. */
const names = {
  name: "shared-names",
  enforce: "post",
  transform(code, importer) {
    for (const { type, source, specifiers } of this.parse(code).body) {
      const module = type === "ImportDeclaration" && outside(source.value, importer);
      if (!module) continue;
      if (!used.has(module)) used.set(module, new Set());
      for (const one of specifiers)
        if (one.type === "ImportNamespaceSpecifier")
          for (const [, name] of code.matchAll(/\$\.([a-z_]\w*)/gi)) used.get(module).add(name);
        else used.get(module).add(one.imported?.name ?? "default");
    }
  },
  generateBundle() {
    const entries = [...used].filter(([, found]) => found.size).sort();
    const sorted = entries.map(([module, found]) => [module, [...found].sort()]);
    mkdirSync(path.dirname(SHARED), { recursive: true });
    writeFileSync(SHARED, JSON.stringify(Object.fromEntries(sorted)));
  },
};

export default defineConfig({
  plugins: [external, svelte(), names],
  publicDir: false,
  build: {
    outDir: "../src/regard/explore/static",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      input: "src/lessons/main.ts",
      output: {
        format: "iife",
        entryFileNames: "lessons.js",
        assetFileNames: "lessons[extname]",
        globals: (id) => `regardExplorer[${JSON.stringify(id)}]`,
      },
    },
  },
});
