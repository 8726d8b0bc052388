// Controls that ablate heads and MLPs or edit a head's steps, and the list of what is edited.

import { ablationOf, isAblation, isAmong } from "../numbers/changes.js";
import { STEPS_TO_CHANGE } from "../numbers/constants.js";
import { say } from "../sources/description.js";
import { chooseHead } from "../state/actions.js";
import { requestChanges, requests } from "../state/requests.js";
import { describedCell, isSameHead, on, selection } from "../state/store.js";
import { alignment, nameOfChange, traces } from "../state/traces.js";
import { checkboxOf, replaceWithFields } from "../drawing/draw.js";
import { buttonOf, byId, make } from "../drawing/elements.js";

/** Toggle an element of a list: remove it if one of the list is equal, otherwise add it. */
function toggled(list, element, isEqual) {
  const others = list.filter((other) => !isEqual(other));
  return others.length < list.length ? others : [...list, element];
}

/** Make a change, such as the ablation of a head or MLP, or undo it. */
const toggleChange = (change) =>
  requestChanges(toggled(requests.last.changes, change, (other) => isAmong([other], change)));

/** Whether a change edits this step of the open head. An edit of the mask has no `step`, but the kind "mask". */
const isOfStep = (change, step) => isSameHead(change, selection) && (change.step ?? change.kind) === step;

const changeOf = (step) => requests.last.changes.find((change) => isOfStep(change, step));

/** Replace the change of a step of the open head; null removes it. */
function changeStep(step, change) {
  const others = requests.last.changes.filter((change) => !isOfStep(change, step));
  const { layer, head } = selection;
  requestChanges(change ? [...others, { layer, head, ...change }] : others);
}

/** The cell of the open head's mask that is pointed at or selected, [query, key] in the last trace, or null. */
function cellOfMask() {
  const { query, key } = describedCell();
  const { number } = traces.at(-1);
  const cell = [alignment.queries[query]?.[number], alignment.keys[key]?.[number]];
  return cell.every(Number.isInteger) ? cell : null;
}

/** The cells of the open head's mask that are toggled, as [query, key]. */
const toggledCells = () => changeOf("mask")?.cells ?? [];

/** Toggle a cell of the open head's mask: whether the query may attend to the key. */
function toggleCell() {
  const cell = cellOfMask();
  if (!cell) return;
  const cells = toggled(toggledCells(), cell, (other) => other.join() === cell.join());
  changeStep("mask", cells.length ? { kind: "mask", cells } : null);
}

/** A change in short: silenced heads as they are named in the sentence, such as 1.2. */
function shortNameOf(change) {
  const { layer, head } = change;
  if (!isAblation(change)) return nameOfChange(change);
  return head === undefined ? `MLP ${layer}` : `${layer}.${head}`;
}

/** List what is silenced or edited. Each has a button that undoes it, and there is one for all. */
function listChanges() {
  const { changes } = requests.last;
  const restore = (undo) => {
    byId("prompt").focus(); // the button is removed
    undo();
  };
  const buttonOfChange = (change) => {
    const words = `${shortNameOf(change)} ×`;
    const label = `${words} (${say("give it back")})`;
    return buttonOf(() => restore(() => toggleChange(change)), { "aria-label": label }, words);
  };
  const all = buttonOf(() => restore(() => requestChanges([])), { id: "give-back" }, say("give all back"));
  const words = changes.every(isAblation) ? say("Silenced:") : say("Edited:");
  const listed = changes.length ? [words, ...changes.map(buttonOfChange)] : [];
  byId("ablated").replaceChildren(...listed, ...(changes.length > 1 ? [all] : []));
}

/** Show the open head's changes in the controls that make them. */
function markControls() {
  const { layer, head } = selection;
  const { changes } = requests.last;
  const isAblated = isAmong(changes, ablationOf(layer, head));
  byId("head-toggle").textContent = isAblated ? say("Restore this head (S)") : say("Ablate this head (S)");
  const isMlpAblated = isAmong(changes, ablationOf(layer));
  byId("mlp-toggle").textContent = isMlpAblated
    ? say("Restore the MLP of layer {layer}", { layer })
    : say("Ablate the MLP of layer {layer}", { layer });
  showFactor(100 * (changeOf(byId("changed-step").value)?.factor ?? 1));
  const isToggled = toggledCells().some((cell) => cell.join() === cellOfMask()?.join());
  byId("cell-toggle").ariaPressed = String(isToggled);
  for (const kind of ["uncausal", "unscaled"]) byId(kind).checked = isAmong(changes, { kind });
}

function showFactor(percent) {
  byId("factor").value = percent;
  byId("changes").querySelector(".value").textContent = `× ${(percent / 100).toFixed(2)}`;
}

const buttonWithId = (id, words, click) => buttonOf(click, { id }, words);
const rowOfControls = (...controls) => make("div", { class: "controls" }, ...controls);

/** Controls that scale a step of the open head or all heads. */
function stepControls() {
  const options = STEPS_TO_CHANGE.map((name) => make("option", {}, name));
  const step = make("select", { id: "changed-step", "aria-label": say("step"), change: markControls }, ...options);
  step.value = "weights";
  const input = ({ target }) => showFactor(target.valueAsNumber);
  const change = ({ target: { valueAsNumber: percent } }) =>
    changeStep(step.value, percent === 100 ? null : { kind: "scale", step: step.value, factor: percent / 100 });
  const range = { type: "range", min: "0", max: "200", step: "5", "aria-label": say("Factor") };
  const factor = make("input", { id: "factor", ...range, input, change });
  const checkbox = (kind, words) => checkboxOf({ id: kind }, words, () => toggleChange({ kind }));
  return make(
    "details",
    { id: "changes" },
    make("summary", {}, say("Edit a step")),
    rowOfControls(step, make("span", {}, factor, make("span", { class: "value" }))),
    rowOfControls(buttonWithId("cell-toggle", say("Toggle the selected cell of the mask (M)"), toggleCell)),
    rowOfControls(
      checkbox("uncausal", say("Remove the causal mask")), checkbox("unscaled", say("Don't divide by √Dk")),
    ),
  );
}

/** Ablate a head, or restore it; the sentence is about this head then. */
function toggleHead({ layer, head }) {
  chooseHead(layer, head);
  toggleChange(ablationOf(layer, head));
}

function headControls() {
  const ablateMlp = buttonWithId("mlp-toggle", "", () => toggleChange(ablationOf(selection.layer)));
  const ablateHead = buttonWithId("head-toggle", "", () => toggleHead(selection));
  return make("div", { id: "toggles" }, ablateHead, ablateMlp, stepControls());
}

/** Put the controls below the open head's title. */
export function startEditing() {
  byId("head-title").after(headControls());
  // S ablates the head that has focus, among all heads or in its map; M toggles a cell of its mask.
  for (const id of ["every-head", "heatmaps"])
    byId(id).addEventListener("keydown", ({ key, target, ctrlKey, altKey, metaKey }) => {
      if (ctrlKey || altKey || metaKey) return;
      if (key.toLowerCase() === "s") toggleHead(target.layer === undefined ? selection : target);
      if (key.toLowerCase() === "m" && id === "heatmaps") toggleCell();
    });
  on("language", () => replaceWithFields(byId("toggles"), headControls()));
  on("traces request language", listChanges);
  on("traces request language head query key", markControls);
}
