// A source with a model: the explorer that serves the page, see attnlab/model/explorer.py.

/** Request JSON or bytes from the explorer; errors have its `status`. */
async function answerTo(path, body, signal) {
  const token = new URLSearchParams(location.search).get("token");
  let response, content;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
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
  const lost = say("The explorer isn't responding: it has stopped or can't be reached.");
  throw Object.assign(new Error(content.error ?? lost), { status: response?.status });
}

class ServerSource extends LiveSource {
  open = (text, ablated, signal) => answerTo("trace", { ...text, ablated }, signal);

  generate = (trace, how, signal) =>
    this.#request(trace, "write", { trace: trace.id, ...how }, signal);

  /** Disable everything that needs the explorer. */
  markEnded() {
    this.hasEnded = true;
    byId("prompt").readOnly = true;
    const controls = "#explore :is(button, input):not(#sampling *), #toggles button, #end";
    for (const control of document.querySelectorAll(controls)) control.disabled = true;
  }

  async end() {
    try {
      await answerTo("stop", {});
      otherTabs.postMessage("ended");
      showEnded();
    } catch (error) {
      showStatus(error.message);
    }
  }

  async read(trace, name) {
    const path = `numbers?${new URLSearchParams({ trace: trace.id, name })}`;
    return new Float32Array(await this.#request(trace, path, undefined, trace.leaving.signal));
  }

  /** Request something about a trace; trace it again if the explorer has dropped it. */
  async #request({ ids, ablated }, path, body, signal) {
    try {
      return await answerTo(path, body, signal);
    } catch (error) {
      if (error.status !== 410) throw error;
      await this.open({ ids }, ablated, signal);
      return answerTo(path, body, signal);
    }
  }
}

source = new ServerSource();

// ---- its end ---------------------------------------------------------------------------------------

const otherTabs = new BroadcastChannel("attnlab explorer"); // of this address, so of this explorer

function showEnded() {
  source.markEnded();
  showStatus(say("The explorer has stopped. You can still view this page; start the explorer again for more."));
}

otherTabs.addEventListener("message", showEnded);
