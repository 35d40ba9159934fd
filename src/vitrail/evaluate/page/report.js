"use strict";
// The report works on data inside the page. Names come from strangers: they are set as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const percent = (share) => (100 * share).toFixed(1) + "%";

function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function answer([label, chance, right]) {
  const line = element("li", { className: right ? "hit" : "" }, [
    element("span", { textContent: label }),
    element("span", { textContent: percent(chance) }),
  ]);
  line.style.setProperty("--chance", chance);
  return line;
}

function figure(picture) {
  const image = picture.src
    ? element("img", { src: picture.src, alt: picture.path, loading: "lazy", className: picture.small ? "small" : "" })
    : "the file is gone";
  return element("figure", {}, [
    element("div", { className: "frame" }, [image]),
    element("figcaption", {}, [
      element("span", { className: "true", textContent: picture.true || "none of the classes" }),
      element("ol", {}, picture.answers.map(answer)),
      element("div", { className: "path", textContent: picture.path }),
    ]),
  ]);
}

function title(name) {
  const [first, second] = name.split("-");
  if (second === "missed") return `${data.labels[first]}, missed`;
  if (second === "extra") return `${data.labels[first]}, wrongly said`;
  if (first === second) return `${data.labels[first]}, recognised (the least certain first)`;
  return `${data.labels[first]}, taken for ${data.labels[second]}`;
}

function show(name) {
  const { total, pictures } = data.cells[name];
  const left = total - pictures.length;
  const count = left ? `${total} pictures, of which ${pictures.length} are in this page; predictions.csv names all.`
    : `${total} picture${total === 1 ? "" : "s"}.`;
  document.getElementById("seen").replaceChildren(
    element("h3", { textContent: title(name) }),
    element("p", { className: "quiet", textContent: count }),
    element("div", { className: "gallery" }, pictures.map((place) => figure(data.pictures[place]))),
  );
  for (const button of document.querySelectorAll("[data-cell]")) {
    button.setAttribute("aria-pressed", button.dataset.cell === name);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-cell]");
  if (!button) return;
  show(button.dataset.cell);
  const seen = document.getElementById("seen");
  if (seen.getBoundingClientRect().top > innerHeight * 0.8) seen.scrollIntoView({ block: "start" });
});

function sort(head) {
  const table = head.closest("table");
  const place = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.children[place].dataset.value ?? row.children[place].textContent;
  const compare = (a, b) => (head.classList.contains("n") ? value(a) - value(b) : value(a).localeCompare(value(b)));
  const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
  table.tBodies[0].append(...rows);
}

for (const head of document.querySelectorAll("table.sorted thead th")) {
  const button = element("button", { type: "button", textContent: head.textContent });
  button.addEventListener("click", () => sort(head));
  head.replaceChildren(button);
}

for (const input of document.querySelectorAll("input.filter")) {
  input.hidden = false;
  input.addEventListener("input", () => {
    for (const row of document.querySelectorAll("table.sorted tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(input.value.toLowerCase());
    }
  });
}

const worst = document.getElementById("worst");
if (worst) worst.append(...data.worst.map((place) => figure(data.pictures[place])));
const first = document.querySelector(".pairs [data-cell]") ?? document.querySelector(".miss [data-cell]");
if (first) show(first.dataset.cell);
