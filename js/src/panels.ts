/**
 * This module knows the second bundle: the views and dialogs that are fetched when one of them is opened first.
 * It does not know how it is fetched: see `lazy.ts`.
 */
export { createAudit } from "./audit";
export { openAppend, openPack, openUnpack } from "./dialogs";
export { createDims } from "./dims";
export { createEpisodes } from "./episodes";
export { createExport } from "./export";
export { createFrames } from "./frames";
export { createInfo } from "./info";
export { createPlot } from "./plot";
export { createStats } from "./stats";
