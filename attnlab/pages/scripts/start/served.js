// A page whose numbers come from the explorer that serves it.

import { description } from "../sources/description.js";
import { ServerSource } from "../sources/server.js";
import { setSource, source } from "../sources/source.js";
import { makeExplorer } from "../views/explorer.js";
import { startPage } from "./page.js";

setSource(new ServerSource());
description.traces = description.traces.map(source.withNames);
startPage();
makeExplorer();
