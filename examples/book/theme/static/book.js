// Each playground's frame is as tall as what it shows, so that only the chapter scrolls.
addEventListener("message", ({ source, data }) => {
  for (const frame of document.querySelectorAll("iframe.playground"))
    if (frame.contentWindow === source && data.height > 0) frame.style.height = `${data.height}px`;
});

// A field for each prediction; the answer that follows opens once something is written there.
// Nothing is stored.
const FIRST = document.documentElement.lang.startsWith("zh")
  ? "先写下自己的，答案才会打开。"
  : "Write yours first; then the answer opens.";

function ask(place, number) {
  const answer = [...document.querySelectorAll("details")].find(
    (fold) => place.compareDocumentPosition(fold) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  const label = document.createElement("label");
  const field = document.createElement("textarea");
  const hint = document.createElement("small");
  field.id = `prediction-${number}`;
  field.rows = 2;
  label.htmlFor = field.id;
  label.textContent = place.textContent.split(/[:：]/)[0];
  hint.id = `${field.id}-hint`;
  hint.textContent = FIRST;
  field.setAttribute("aria-describedby", hint.id);
  place.replaceChildren(label, field, hint);
  const isWritten = () => field.value.trim() !== "";
  field.addEventListener("input", () => (hint.hidden = isWritten()));
  answer?.querySelector("summary").addEventListener("click", (event) => {
    if (answer.open || isWritten()) return;
    event.preventDefault();
    field.focus();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("p.prediction").forEach(ask);
  for (const output of document.querySelectorAll(".cell_output pre"))
    output.classList.toggle("table", /\S {2,}\S/.test(output.textContent)); // it has columns
});
