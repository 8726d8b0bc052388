// The first script of a page that includes its model. It runs twice: in the page, whose other script uses the same
// modules, and in the page's worker, where it serves the model.

import { serveModel } from "../sources/model.js";

if (typeof document === "undefined") serveModel();
