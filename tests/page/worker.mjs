// The worker of a page with a model, in a thread of Node.js.

import { parentPort } from "node:worker_threads";

globalThis.onmessage = null;
globalThis.postMessage = (message, moved) => parentPort.postMessage(message, moved);
await import("../scripts/start/worker.js");
parentPort.on("message", (data) => onmessage({ data }));
