
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const plots = [...document.querySelectorAll(".plot")].map((box) => ({
    box,
    figure: JSON.parse(document.getElementById(`${box.id}-data`).textContent),
  }));
  // A4 less its margins, in CSS pixels: while printing, boxes still have the screen's width.
  const PAPER_WIDTH = 690;

  // Only values under a key about colour are looked up: a machine may be called "@ink".
  function painted(node, theme, isColor) {
    if (typeof node === "string") return (isColor && theme[node]) || node;
    if (Array.isArray(node)) return isColor ? node.map((item) => painted(item, theme, true)) : node.map((item) => (item && typeof item === "object" ? painted(item, theme, false) : item));
    if (node && typeof node === "object") {
      return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, painted(value, theme, /color/i.test(key))]));
    }
    return node;
  }

  function draw() {
    const theme = themes[dark.matches && !paper.matches && !printing ? "dark" : "light"];
    const isTouch = matchMedia("(pointer: coarse)").matches;
    for (const { box, figure } of plots) {
      const { data, layout } = painted(figure, theme, false);
      layout.width = printing || paper.matches ? PAPER_WIDTH : box.clientWidth;
      if (layout.width < 500) {
        layout.xaxis.nticks = 6;
        if (figure.narrow) layout.yaxis.ticktext = figure.narrow;
      }
      // On touch screens a drag must scroll the page.
      layout.dragmode = isTouch ? false : "zoom";
      Plotly.react(box, data, layout, { displayModeBar: false, showTips: false, doubleClick: "reset" });
    }
  }

  let printing = false;
  let pending = 0;
  const redraw = () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(draw);
  };
  addEventListener("beforeprint", () => { printing = true; draw(); });
  addEventListener("afterprint", () => { printing = false; draw(); });
  paper.addEventListener("change", draw);
  dark.addEventListener("change", draw);
  addEventListener("resize", redraw);
  draw();
})();
