/** The modules that the lessons' script takes from the page's: see vite.lessons.config.js. */
declare module "virtual:shared" {
  const modules: Record<string, Record<string, unknown>>;
  export default modules;
}

interface Window {
  regardExplorer?: Record<string, Record<string, unknown>>;
  /** set by lessons.js */
  regardLessons?: import("svelte").Component;
  /** set by arithmetic.js, in a saved page only */
  regardArithmetic?: { open: typeof import("./arithmetic/main").Arithmetic.open };
}
