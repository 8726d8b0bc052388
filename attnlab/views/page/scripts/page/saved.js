// A page that carries its numbers.

import { FileSource, setSource } from "../sources/source.js";
import { startPage } from "./page.js";

setSource(new FileSource());
startPage();
