"use strict";
// Moves what the page's drawings hold: other widths, other axes, curves left out, values on request.
// Scales, ticks and numbers come with the drawing: data-x is a fraction of the width and data-y pixels, each
// for a linear and a logarithmic axis; "-" has no place on it.
(() => {
  const NARROW = 540; // Pixels; below that a plot is a phone's.
  const root = document.documentElement;
  const all = (from, what) => Array.from(from.querySelectorAll(what));
  const numbers = (text) => (text || "").split(" ").map((word) => (word === "-" ? NaN : Number(word)));
  const make = (name, of = {}, ...inside) => {
    const element = Object.assign(document.createElement(name), of);
    element.append(...inside);
    return element;
  };

  root.classList.add("scripted");
  colours();
  for (const figure of all(document, "figure")) {
    if (figure.querySelector(".canvas")) start(figure);
  }

  // The button for light and dark; what was chosen is kept where the browser lets us.
  function colours() {
    const button = document.getElementById("theme");
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const keep = (theme) => {
      try { return theme ? localStorage.setItem("theme", theme) : localStorage.getItem("theme"); } catch { return null; }
    };
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const say = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    };
    const kept = keep();
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      keep(root.dataset.theme);
      say();
    });
    dark.addEventListener("change", say);
    say();
  }

  function start(figure) {
    const canvas = figure.querySelector(".canvas");
    const svg = canvas.querySelector("svg");
    const geometry = {
      left: Number(svg.dataset.left), right: numbers(svg.dataset.right), below: numbers(svg.dataset.below),
      tilt: numbers(svg.dataset.tilt), inset: Number(svg.dataset.inset),
      top: Number(svg.dataset.top), base: Number(svg.dataset.base),
    };
    const corners = svg.dataset.corners.split(",").map((corner) => corner.split(" "));
    const plot = {
      figure, canvas, svg, geometry, corners, kind: figure.dataset.kind,
      way: { x: Number(figure.dataset.xway), y: Number(figure.dataset.yway) },
      curves: all(svg, ".curve").map((group) => curve(figure, group)),
      stops: [], at: -1, wide: 0,
    };
    for (const button of all(figure, ".switch button")) {
      button.addEventListener("click", () => {
        plot.way[button.dataset.axis] = Number(button.dataset.way);
        for (const other of all(button.parentElement, "button")) other.setAttribute("aria-pressed", other === button);
        place(plot);
      });
    }
    for (const one of plot.curves) {
      one.button.addEventListener("click", () => {
        one.isShown = !one.isShown;
        one.button.setAttribute("aria-pressed", one.isShown);
        place(plot);
      });
      const faint = (isFaint) => () => {
        for (const other of plot.curves) other.group.classList.toggle("faint", isFaint && one.isShown && other !== one);
      };
      for (const event of ["pointerenter", "focus"]) one.button.addEventListener(event, faint(true));
      for (const event of ["pointerleave", "blur"]) one.button.addEventListener(event, faint(false));
    }
    canvas.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      show(plot, nearest(plot, event.clientX - box.left, event.clientY - box.top));
    });
    canvas.addEventListener("pointerleave", () => show(plot, -1));
    canvas.addEventListener("blur", () => show(plot, -1));
    canvas.addEventListener("keydown", (event) => key(plot, event));
    // Told once it has been laid out: asking here would lay out the whole page again for each plot.
    new ResizeObserver(([entry]) => {
      plot.wide = entry.contentRect.width;
      place(plot);
    }).observe(canvas);
  }

  function curve(figure, group) {
    const button = figure.querySelector(`.legend button[data-curve="${group.dataset.curve}"]`);
    const marks = all(group, ".mark, .bar").map((element) => ({
      element, x: numbers(element.dataset.x), y: numbers(element.dataset.y), base: numbers(element.dataset.base),
      wide: Number(element.dataset.wide || 0), range: element.dataset.range ? numbers(element.dataset.range) : null,
      text: element.querySelector("text"),
    }));
    return { group, button, marks, name: button.textContent.trim(), isShown: true };
  }

  // Lays everything out for the width there is, the axes and the curves that are on.
  function place(plot) {
    const { svg, geometry, way, wide } = plot;
    if (wide === 0) return;
    const narrow = wide < NARROW ? 1 : 0;
    const edge = wide - geometry.right[narrow];
    const from = geometry.left + geometry.inset;
    const across = (part) => from + part * (edge - geometry.inset - from);
    const high = geometry.base + geometry.below[narrow];
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    svg.setAttribute("height", high);
    svg.classList.toggle("narrow", narrow === 1);
    axes(plot, { across, edge, narrow, high });

    const lifts = new Map();
    plot.stops = [];
    for (const one of plot.curves) {
      one.group.classList.toggle("off", !one.isShown);
      one.button.classList.toggle("out", !one.isShown);
      for (const mark of one.marks) {
        mark.at = { x: across(mark.x[way.x]), y: mark.y[way.y] };
        if (mark.wide) bar(plot, one, mark, across(mark.wide) - across(0), lifts);
        else point(plot, mark, narrow);
        if (one.isShown && !Number.isNaN(mark.at.x + mark.at.y)) stop(plot, one, mark);
      }
      lines(plot, one);
      const label = one.group.querySelector(":scope > .label");
      if (label) {
        label.setAttribute("x", edge + 6);
        label.setAttribute("y", numbers(label.dataset.y)[way.y] || -99);
        label.classList.toggle("off", narrow === 1);
      }
    }
    plot.stops.sort((one, other) => one.x - other.x || one.y - other.y);
    show(plot, -1);
  }

  function axes({ svg, geometry, way }, { across, edge, narrow, high }) {
    for (const axis of ["x", "y"]) {
      const groups = all(svg, `.axis.${axis}`);
      for (const group of groups) {
        group.classList.toggle("off", groups.length > 1 && group.classList.contains("log") !== (way[axis] === 1));
      }
    }
    for (const grid of all(svg, ".grid")) grid.setAttribute("d", `M${geometry.left} 0H${edge}`);
    svg.querySelector(".frame").setAttribute("d", `M${geometry.left} ${geometry.base}H${edge}`);
    for (const tick of all(svg, ".axis.x > g")) {
      tick.setAttribute("transform", `translate(${across(Number(tick.dataset.x))} ${geometry.base})`);
      const text = tick.querySelector("text");
      const isTilted = geometry.tilt[narrow] === 1;
      text.setAttribute("text-anchor", isTilted ? "end" : "middle");
      if (isTilted) text.setAttribute("transform", svg.dataset.tilted);
      else text.removeAttribute("transform");
    }
    const title = svg.querySelector(".title.end");
    title.setAttribute("x", edge);
    title.setAttribute("y", high - 8);
  }

  function bar({ kind, way }, one, mark, wide, lifts) {
    let base = mark.base[way.y];
    if (kind === "stacked") {
      // What is left out below lets the rest down.
      const lift = lifts.get(mark.x[0]) || 0;
      if (!one.isShown) lifts.set(mark.x[0], lift + base - mark.at.y);
      base += lift;
      mark.at.y += lift;
    }
    const { element, at } = mark;
    element.setAttribute("x", at.x);
    element.setAttribute("width", Math.max(wide - 1, 1));
    element.setAttribute("y", Math.min(at.y, base));
    element.setAttribute("height", Math.abs(base - at.y));
    at.x += wide / 2;
  }

  function point({ way, corners }, mark, narrow) {
    const isThere = !Number.isNaN(mark.at.x + mark.at.y);
    mark.element.setAttribute("transform", isThere ? `translate(${mark.at.x} ${mark.at.y})` : "translate(-99 -99)");
    if (!mark.text) return;
    const corner = corners[mark.text.dataset.sides[narrow * 4 + way.x * 2 + way.y]];
    mark.text.classList.toggle("off", !corner);
    if (!corner) return;
    mark.text.setAttribute("x", corner[0]);
    mark.text.setAttribute("y", corner[1]);
    mark.text.setAttribute("text-anchor", corner[2]);
  }

  // What joins a curve's marks: its line, the band of its ranges, its whiskers.
  function lines({ way }, { group, marks }) {
    const set = (name, path) => {
      const element = group.querySelector(`:scope > .${name}`);
      if (element) element.setAttribute("d", path);
    };
    let line = "", band = "", whiskers = "", before = null;
    for (const { at, range } of marks) {
      if (Number.isNaN(at.x + at.y)) {
        before = null;
        continue;
      }
      const low = range ? range[way.y] : at.y, high = range ? range[2 + way.y] : at.y;
      line += `${before ? "L" : "M"}${at.x} ${at.y}`;
      if (before) band += `M${before.x} ${before.high}L${at.x} ${high}V${low}L${before.x} ${before.low}z`;
      if (range) whiskers += `M${at.x} ${low}V${high}m-3 0h6M${at.x} ${low}m-3 0h6`;
      before = { x: at.x, low, high };
    }
    set("line", line);
    set("band", band);
    set("whisker", whiskers);
  }

  // Where the readout can stop: at each value along x, or at each point of a scatter.
  function stop(plot, one, mark) {
    const { key: at, say, between } = mark.element.dataset;
    const row = { one, mark, say, between };
    const same = plot.kind !== "scatter" && plot.stops.find((other) => other.key === at);
    if (same) same.rows.push(row);
    else plot.stops.push({ key: at, x: mark.at.x, y: mark.at.y, rows: [row] });
  }

  function nearest({ stops, kind }, x, y) {
    const far = (stop) => Math.hypot(stop.x - x, kind === "scatter" ? stop.y - y : 0);
    let best = -1;
    stops.forEach((stop, index) => {
      if (best < 0 || far(stop) < far(stops[best])) best = index;
    });
    return kind === "scatter" && best >= 0 && far(stops[best]) > 60 ? -1 : best;
  }

  function key(plot, event) {
    const last = plot.stops.length - 1;
    const to = {
      ArrowRight: Math.min(plot.at + 1, last), ArrowLeft: Math.max(plot.at - 1, 0), Home: 0, End: last, Escape: -1,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    show(plot, to);
    plot.figure.querySelector(".spoken").textContent = to < 0 ? "" : spoken(plot, plot.stops[to]);
  }

  function spoken({ kind, canvas }, stop) {
    if (kind !== "scatter") return `${stop.key}: ${stop.rows.map((row) => `${row.one.name} ${row.say}`).join("; ")}`;
    const [row] = stop.rows;
    return `${name(row)}: ${canvas.dataset.x} ${stop.key}, ${canvas.dataset.y} ${row.say}`;
  }

  const name = (row) => (row.mark.text ? row.mark.text.textContent : row.one.name);

  function show(plot, index) {
    const { canvas, svg, geometry, kind } = plot;
    const readout = canvas.querySelector(".readout");
    const guide = svg.querySelector(".guide");
    for (const hot of all(svg, ".hot")) hot.classList.remove("hot");
    plot.at = index;
    readout.hidden = index < 0;
    guide.setAttribute("d", "");
    if (index < 0) return;
    const stop = plot.stops[index];
    for (const row of stop.rows) row.mark.element.classList.add("hot");
    if (kind === "scatter") {
      const [row] = stop.rows;
      readout.replaceChildren(
        make("b", {}, name(row)),
        line(null, canvas.dataset.x, stop.key),
        line(null, canvas.dataset.y, row.say, row.between),
      );
    } else {
      if (kind === "lines") guide.setAttribute("d", `M${Math.round(stop.x)} ${geometry.top}V${geometry.base}`);
      const rows = kind === "stacked" ? stop.rows.slice().reverse() : stop.rows.slice().sort((one, other) => one.mark.at.y - other.mark.at.y);
      readout.replaceChildren(
        make("b", {}, kind === "lines" ? `${canvas.dataset.x}: ${stop.key}` : stop.key),
        ...rows.map((row) => line(row.one, row.one.name, row.say, row.between)),
      );
    }
    // Beside the place, on the side with more room.
    const room = plot.wide, wide = readout.offsetWidth;
    const isLeft = stop.x > room / 2;
    const left = isLeft ? stop.x - wide - 16 : stop.x + 16;
    readout.style.left = `${Math.max(0, Math.min(left, room - wide))}px`;
    readout.style.top = `${kind === "scatter" ? Math.max(0, stop.y - readout.offsetHeight / 2) : geometry.top}px`;
  }

  function line(one, what, says, between) {
    const row = make("span", { className: "row" });
    if (one) {
      const swatch = one.button.querySelector("svg").cloneNode(true);
      row.append(swatch);
    }
    row.append(make("span", {}, what), make("strong", {}, says));
    if (between) row.append(make("small", {}, between));
    return row;
  }
})();
