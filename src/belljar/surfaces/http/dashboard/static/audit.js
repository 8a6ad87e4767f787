/** The audit page: search, and the verification of the chain. */
import { $, ask, complain } from "./dom.js";
import { startKeys } from "./keys.js";
import { result, renewSoon, startPage } from "./page.js";
import { isLive, on } from "./live.js";
import { number } from "./present.js";

$("#verify")?.addEventListener("click", async () => {
  try {
    const report = await ask("GET", "/v1/audit/verify");
    result(report.ok ? `Intact: ${number(report.records)} records` : `Broken at ${report.at}: ${report.reason}`);
  } catch (error) {
    complain($("#acts"), "verify", error);
  }
});
on("change", () => renewSoon(2000));
startKeys({ "/": () => $("#search").focus(), Escape: (target) => target.blur() });
startPage(["audit"]);
