const { config, specs } = JSON.parse(document.getElementById("drawings").textContent);
const options = { config, renderer: "svg", actions: false, ast: true };
const plots = specs.map((spec, index) => vegaEmbed(`#plot-${index + 1}`, spec, options));
Promise.allSettled(plots).then((results) => {
  results.filter((result) => result.status === "rejected").forEach((result) => console.error(result.reason));
  document.documentElement.dataset.drawn = results.filter((result) => result.status === "fulfilled").length;
});
for (const [event, open] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => document.querySelectorAll("details").forEach((part) => { part.open = open; }));
}
