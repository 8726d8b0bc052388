// Cells side by side, such as those of a map: which one a key or the pointer means, and a frame around one.

/** The cell that an arrow key moves to from row i, column j; undefined for other keys. */
export function cellAfterKey(event, i, j, rows, columns) {
  const page = 10;
  const steps = {
    ArrowUp: [i - 1, j],
    ArrowDown: [i + 1, j],
    ArrowLeft: [i, j - 1],
    ArrowRight: [i, j + 1],
    PageUp: [i - page, j],
    PageDown: [i + page, j],
    Home: [event.ctrlKey ? 0 : i, 0],
    End: [event.ctrlKey ? rows - 1 : i, columns - 1],
  };
  if (!(event.key in steps)) return undefined;
  event.preventDefault();
  const clamped = (n, count) => Math.max(0, Math.min(count - 1, n));
  return [clamped(steps[event.key][0], rows), clamped(steps[event.key][1], columns)];
}

/** The cell under the pointer, [row, column], in an element with cells of `side` pixels; it may be outside. */
export function cellUnder({ clientX, clientY }, element, side) {
  const box = element.getBoundingClientRect();
  return [clientY - box.top + element.scrollTop, clientX - box.left + element.scrollLeft].map((n) => Math.floor(n / side));
}

/** Move a frame to cell i, j among cells of `side` pixels; it stays visible around small ones. */
export function moveFrame(frame, i, j, side, smallest) {
  const size = Math.max(side, smallest);
  const corner = (n) => `${(n + 0.5) * side - size / 2}px`;
  frame.style.transform = `translate(${corner(j)}, ${corner(i)})`;
  frame.style.width = frame.style.height = `${size}px`;
}
