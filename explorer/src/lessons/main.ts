/** The lessons' script: hands its component to the page, which waits for it. */

import Lessons from "./Lessons.svelte";

window.regardLessons = Lessons;
