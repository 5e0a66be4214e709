/** The words of the page in the chosen language. */
export { texts } from "./texts.en";
