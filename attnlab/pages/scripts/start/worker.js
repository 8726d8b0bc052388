// The first script of a page that includes its model: it runs in the page, whose other script uses the same modules,
// and as its worker.

import { serveModel } from "../sources/model.js";

if (typeof document === "undefined") serveModel();
