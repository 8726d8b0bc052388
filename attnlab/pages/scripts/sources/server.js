// A source with a model: the explorer that serves the page, see attnlab/pages/explorer.py.

import { language, say, tokenOf } from "./description.js";
import { LiveSource, reports, source } from "./source.js";

/** Request JSON or bytes from the explorer; errors have the response's `status`. */
async function requestExplorer(path, body, signal) {
  const token = new URLSearchParams(location.search).get("token");
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json", "Accept-Language": language };
  const priority = body ? "high" : "low"; // a new text comes before numbers that are still to be sent
  let response, content;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), priority, signal });
    const isJson = response.headers.get("Content-Type") === "application/json";
    content = isJson ? await response.json() : await response.arrayBuffer();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    content = {};
  }
  if (response?.ok && !content.error) return content;
  if (!response) source.markEnded();
  const notResponding = say("The explorer isn't responding: it has stopped or can't be reached.");
  throw Object.assign(new Error(content.error ?? notResponding), { status: response?.status });
}

export class ServerSource extends LiveSource {
  // The packs requested, and those that have arrived; 0 again when all have.
  #requested = 0;
  #arrived = 0;
  #otherTabs = new BroadcastChannel("attnlab explorer"); // pages at the same address, so of the same explorer
  #named = new Map(JSON.parse(document.getElementById("names").textContent).map((name) => [name[0], name]));

  constructor() {
    super();
    this.#otherTabs.addEventListener("message", () => this.#showEnded());
  }

  names = { get: (id) => tokenOf(this.#named.get(id) ?? [id, `<row ${id}>`, "", ""]) };

  open = async (text, changes, signal) => this.withNames(await requestExplorer("trace", { ...text, changes }, signal));

  generate = (trace, settings, signal) => this.#request(trace, "write", { trace: trace.id, ...settings }, signal);

  markEnded() {
    this.hasEnded = true;
    reports.ended();
  }

  #showEnded() {
    this.markEnded();
    reports.status(say("The explorer has stopped. You can still view this page; start the explorer again for more."));
  }

  async end() {
    try {
      await requestExplorer("stop", {});
      this.#otherTabs.postMessage("ended");
      this.#showEnded();
    } catch (error) {
      reports.status(error.message);
    }
  }

  async read(trace, name) {
    const path = `numbers?${new URLSearchParams({ trace: trace.id, name })}`;
    const reading = this.#request(trace, path, undefined, trace.closing.signal);
    return new Float32Array(await (name === "story" ? reading : this.#tracked(reading)));
  }

  /** Wait for a pack, and show how many of the requested ones have arrived. */
  async #tracked(reading) {
    this.#requested++;
    reports.progress(this.#arrived / this.#requested);
    try {
      return await reading;
    } finally {
      this.#arrived++;
      if (this.#arrived === this.#requested) this.#requested = this.#arrived = 0;
      reports.progress(this.#requested ? this.#arrived / this.#requested : 1);
    }
  }

  /** Abort all requests for numbers. */
  stop(traces) {
    for (const { closing } of traces) closing.abort();
  }

  /** Request something about a trace; trace it again if the explorer has dropped it. */
  async #request({ ids, changes }, path, body, signal) {
    try {
      return await requestExplorer(path, body, signal);
    } catch (error) {
      if (error.status !== 410) throw error; // 410: the explorer has dropped the trace
      await this.open({ ids }, changes, signal);
      return requestExplorer(path, body, signal);
    }
  }
}
