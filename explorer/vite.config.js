// One page, one classic script, one style sheet, with names that never change: the server sends them as they are,
// and the offline export puts them into a single file that opens from disk.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

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

export default defineConfig({
  base: "./",
  plugins: [svelte(), classic],
  server: { host: "127.0.0.1", proxy: { "/api": process.env.REGARD ?? "http://127.0.0.1:8765" } },
  build: {
    outDir: "../src/regard/explore/static",
    emptyOutDir: true,
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
