/** Usage renews itself every ten seconds. */
import { startKeys } from "./keys.js";
import { isLive } from "./live.js";
import { renew, startPage } from "./page.js";

setInterval(() => isLive() && renew(), 10_000);
startKeys({ Escape: (target) => target.blur() });
startPage();
