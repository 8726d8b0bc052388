// A source with a model: the explorer that serves the page, see attnlab/views/explorer.py.

/** Request JSON or bytes from the explorer; errors have the response's `status`. */
async function requestExplorer(path, body, signal) {
  const token = new URLSearchParams(location.search).get("token");
  let response, content;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
      priority: body ? "high" : "low", // a new text comes before numbers that are still to be sent
      signal,
    });
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

class ServerSource extends LiveSource {
  // The packs requested, and those that have arrived; 0 again when all have.
  #requested = 0;
  #arrived = 0;
  #named = new Map(JSON.parse(byId("names").textContent).map((name) => [name[0], name]));

  names = { get: (id) => tokenOf(this.#named.get(id) ?? [id, `<row ${id}>`, "", ""]) };

  open = async (text, ablated, signal) => this.withNames(await requestExplorer("trace", { ...text, ablated }, signal));

  generate = (trace, settings, signal) =>
    this.#request(trace, "write", { trace: trace.id, ...settings }, signal);

  /** Disable everything that needs the explorer. */
  markEnded() {
    this.hasEnded = true;
    byId("prompt").readOnly = true;
    const controls = "#explore :is(button, input):not(#sampling *), #toggles button, #end";
    for (const control of document.querySelectorAll(controls)) control.disabled = true;
  }

  async end() {
    try {
      await requestExplorer("stop", {});
      otherTabs.postMessage("ended");
      showEnded();
    } catch (error) {
      showStatus(error.message);
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
    await null; // `showProgress` needs scripts after this one
    showProgress(this.#arrived / this.#requested);
    try {
      return await reading;
    } finally {
      this.#arrived++;
      if (this.#arrived === this.#requested) this.#requested = this.#arrived = 0;
      showProgress(this.#requested ? this.#arrived / this.#requested : 1);
    }
  }

  /** Abort all requests for numbers. */
  stop() {
    for (const { closing } of traces) closing.abort();
  }

  /** Request something about a trace; trace it again if the explorer has dropped it. */
  async #request({ ids, ablated }, path, body, signal) {
    try {
      return await requestExplorer(path, body, signal);
    } catch (error) {
      if (error.status !== 410) throw error; // 410: the explorer has dropped the trace
      await this.open({ ids }, ablated, signal);
      return requestExplorer(path, body, signal);
    }
  }
}

source = new ServerSource();
description.traces = description.traces.map(source.withNames);

// ---- the explorer's end ------------------------------------------------------------------------------

const otherTabs = new BroadcastChannel("attnlab explorer"); // pages at the same address, so of the same explorer

function showEnded() {
  source.markEnded();
  showStatus(say("The explorer has stopped. You can still view this page; start the explorer again for more."));
}

otherTabs.addEventListener("message", showEnded);
