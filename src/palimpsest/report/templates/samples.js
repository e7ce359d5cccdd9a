// Rows are put here as text and never as HTML: `append` and `textContent` alone.
const variants = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const value = (id) => at(id).value;
const SIZE = 25;
const ALL = "all labels";
let first = 0;

function made(tag, ...parts) {
  const element = document.createElement(tag);
  element.append(...parts);
  return element;
}

function cell(parts, ...small) {
  const marked = [parts].flat().map((part, place) => (place % 2 ? made("mark", part) : part));
  const text = made("div", ...marked);
  text.dir = "auto";
  return made("td", text, ...small.filter(Boolean).map((words) => made("small", words)));
}

const whole = (row) => (row ? [row.text].flat().join("") : "");
const chosen = (id) => variants[Number(value(id))];
const labelled = (row) => value("label") === "" || row.label === labels[Number(value("label")) - 1];
const times = (row) => row && row.times > 1 && `${row.times} times`;

function near(row) {
  const found = row.near;
  if (!found) return cell("", "no row is near");
  const unread = row.unread === null ? "" : `, and ${row.unread.toFixed(3)} of a row that was not read`;
  const who = found.person && `person ${found.person}`;
  return cell(found.text, `near ${found.cosine.toFixed(3)}${unread}`, found.label, found.fields, who);
}

// Both lists under each label, the first of one beside the first of the other.
function beside(left, right) {
  const pairs = [];
  for (const label of new Set([...left, ...right].map((row) => row.label))) {
    const [ours, theirs] = [left, right].map((rows) => rows.filter((row) => row.label === label));
    for (let place = 0; place < Math.max(ours.length, theirs.length); place += 1) {
      pairs.push({ label, left: ours[place], right: theirs[place] });
    }
  }
  return pairs;
}

const ORDERS = {
  cosine: (row) => -(row.near ? row.near.cosine : -1),
  longest: (row) => -row.longest,
};

// Each view: its headings, its lines, the texts of a line that are searched, and its cells.
const VIEWS = {
  rows: () => ({
    headings: ["Label", "Synthetic row", "Nearest private row"],
    lines: chosen("variant").rows,
    texts: (row) => [row, row.near],
    cells: (row) => [cell(row.text, row.fields, row.longest && `longest run in a row that was read: ${row.longest} words`), near(row)],
  }),
  beside: () => ({
    headings: ["Label", chosen("variant").name, chosen("other").name],
    lines: beside(chosen("variant").rows, chosen("other").rows),
    texts: (pair) => [pair.left, pair.right],
    cells: (pair) => [pair.left, pair.right].map((row) => cell(whole(row), row && row.fields)),
  }),
  removed: () => ({
    headings: ["Label", "Removed row", "Filter"],
    lines: chosen("variant").removed.flatMap((one) => one.rows.map((row) => ({ ...row, filter: one.filter }))),
    texts: (row) => [row],
    cells: (row) => [cell(row.text), cell(row.filter)],
    notes: chosen("variant").removed.map((one) => `${one.filter} removed ${one.count}${one.rows.length < one.count ? `, of which ${one.rows.length} are here` : ""}: ${one.why}.`),
  }),
  rounds: () => {
    const round = chosen("variant").rounds[Number(value("round"))] ?? { before: [], after: [] };
    const known = new Set(round.before.map((row) => JSON.stringify([row.label, row.text])));
    const stayed = (row) => row && known.has(JSON.stringify([row.label, row.text])) && "was there before";
    return {
      headings: ["Label", "Before", "After"],
      lines: beside(round.before, round.after),
      texts: (pair) => [pair.left, pair.right],
      cells: (pair) => [cell(whole(pair.left), times(pair.left)), cell(whole(pair.right), times(pair.right), stayed(pair.right))],
      notes: chosen("variant").stands ? ["Embeddings have no text before the last round: the public text nearest to each stands for it."] : [],
    };
  },
};

const labels = [...new Set(variants.flatMap((one) => [one.rows, ...one.removed.map((each) => each.rows), ...one.rounds.flatMap((each) => [each.before, each.after])].flat().map((row) => row.label)))].sort();

function draw() {
  const view = VIEWS[value("view")]();
  const sought = value("search").trim().toLowerCase();
  const found = view.lines.filter((line) => labelled(line) && view.texts(line).some((row) => whole(row).toLowerCase().includes(sought)));
  const order = value("view") === "rows" && ORDERS[value("order")];
  const lines = order ? [...found].sort((one, two) => order(one) - order(two)) : found;
  first = Math.min(first, Math.max(0, Math.ceil(lines.length / SIZE) - 1) * SIZE);
  const shown = lines.slice(first, first + SIZE);
  at("headings").replaceChildren(...view.headings.map((words) => Object.assign(made("th", words), { scope: "col" })));
  at("rows").replaceChildren(...shown.map((line) => made("tr", Object.assign(made("th", line.label), { scope: "row" }), ...view.cells(line))));
  at("notes").replaceChildren(...(view.notes ?? []).map((words) => made("li", words)));
  at("place").textContent = shown.length ? `${first + 1} to ${first + shown.length} of ${lines.length}` : "no rows";
  at("back").disabled = first === 0;
  at("on").disabled = first + SIZE >= lines.length;
  tell();
  document.documentElement.dataset.drawn = shown.length;
}

function tell() {
  const one = chosen("variant");
  const some = one.rows.length < one.total ? `, of which ${one.rows.length} are here, drawn at random` : "";
  at("told").textContent = `${one.name}: ${one.role}, ${one.total} rows${some}.`;
  for (const [id, views] of [["other", ["beside"]], ["round", ["rounds"]], ["order", ["rows"]]]) {
    at(id).parentElement.hidden = !views.includes(value("view"));
  }
}

function fill(id, words) {
  at(id).replaceChildren(...words.map((each, place) => Object.assign(made("option", each), { value: place })));
}

function rounds() {
  fill("round", chosen("variant").rounds.map((_, place) => `${place + 1}`));
}

fill("label", [ALL, ...labels.map((label) => label || "no label")]);
at("label").options[0].value = "";
at("label").parentElement.hidden = labels.length < 2;
if (variants.length > 1) at("other").value = 1;
at("controls").addEventListener("submit", (event) => event.preventDefault());
for (const event of ["input", "change"]) {
  at("controls").addEventListener(event, ({ target }) => {
    if (target.id === "variant") rounds();
    first = 0;
    draw();
  });
}
at("back").addEventListener("click", () => { first -= SIZE; draw(); });
at("on").addEventListener("click", () => { first += SIZE; draw(); });
rounds();
draw();
