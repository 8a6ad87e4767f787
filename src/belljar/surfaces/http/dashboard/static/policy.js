/** The policy box: the form works by itself; this keeps the count of what waits and the keys. */
import { $ } from "./dom.js";
import { startKeys } from "./keys.js";
import { startPage } from "./page.js";

startKeys({ "/": () => $("#command")?.focus(), Escape: (target) => target.blur() });
startPage();
