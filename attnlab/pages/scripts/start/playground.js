// A page that includes its model, and runs it in a worker.

import { description } from "../sources/description.js";
import { embeddedNumbers, setSource, source } from "../sources/source.js";
import { ModelSource } from "../sources/tab.js";
import { attributionBox } from "../views/attribution.js";
import { makeExplorer } from "../views/explorer.js";
import { moreBoxes } from "../views/story.js";
import { startPage } from "./page.js";

setSource(ModelSource.ofPage(description.model, embeddedNumbers(document.getElementById("parameters"))));
description.traces = description.traces.map(source.withNames);
moreBoxes.push(attributionBox);
startPage();
makeExplorer();
