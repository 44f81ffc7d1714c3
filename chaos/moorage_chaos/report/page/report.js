// Draws the charts of a row when it is opened. Data: the JSON in #charts, written by report/page.py.
"use strict";
(() => {
  const rows = JSON.parse(document.getElementById("charts").textContent);
  const GUTTER = 104;
  const KINDS = ["ok", "typed", "untyped"];
  const plots = new Map();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) =>
    value === null || value === undefined ? "–" : value >= 1000 ? value.toFixed(0) : String(+value.toPrecision(3));

  /** Grey areas where a fault was in force; a moment is a line. */
  function shade(bands) {
    return {
      hooks: {
        drawClear: (u) => {
          const { ctx, bbox } = u;
          ctx.save();
          ctx.beginPath();
          ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
          ctx.clip();
          for (const band of bands) {
            const left = u.valToPos(band.from, "x", true);
            const width = Math.max(u.valToPos(band.to, "x", true) - left, devicePixelRatio);
            ctx.fillStyle = css("--band");
            ctx.fillRect(left, bbox.top, width, bbox.height);
            ctx.fillStyle = css("--band-edge");
            ctx.fillRect(left, bbox.top, devicePixelRatio, bbox.height);
          }
          ctx.restore();
        },
      },
    };
  }

  function options(row, height, y, series, bands, more = {}) {
    const text = css("--muted");
    const grid = { stroke: css("--grid"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: text, grid, ticks: grid, font };
    return {
      width: 600,
      height,
      padding: [8, 20, 0, 0],
      cursor: { sync: { key: row }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: y.scale || {} },
      axes: [
        { ...axis, space: 70, size: 30, values: (u, splits) => splits.map((s) => `${+s.toFixed(3)} s`) },
        { ...axis, size: GUTTER, values: (u, splits) => splits.map((s) => (s === null ? "" : y.label(s))), ...y.axis },
      ],
      series: [{ label: "time", value: (u, v) => (v === null ? "–" : `${v.toFixed(2)} s`) }, ...series],
      plugins: [shade(bands)],
      ...more,
    };
  }

  function marker(ctx, kind, x, y, size) {
    ctx.beginPath();
    if (kind === 0) ctx.arc(x, y, size * 0.55, 0, 2 * Math.PI);
    else if (kind === 1) ctx.rect(x - size / 2, y - size / 2, size, size);
    else {
      ctx.moveTo(x, y - size * 0.8);
      ctx.lineTo(x + size * 0.8, y + size * 0.6);
      ctx.lineTo(x - size * 0.8, y + size * 0.6);
      ctx.closePath();
    }
    ctx.fill();
  }

  /** A logarithmic axis of milliseconds that holds all values; lines at the decades only. */
  function decades(values) {
    let low = 1, high = 10;
    for (const v of values) {
      if (v !== null && v > 0 && v < low) low = v;
      if (v !== null && v > high) high = v;
    }
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high * 1.001));
    const splits = Array.from({ length: last - first + 1 }, (_, i) => Math.pow(10, first + i));
    return {
      scale: { distr: 3, log: 10, range: [splits[0], splits[splits.length - 1]] },
      axis: { splits, filter: (u, all) => all },
      label: (v) => `${+v.toPrecision(6)} ms`,
    };
  }

  function points(row, data, { x, y, k }, height) {
    const draw = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const size = 5 * devicePixelRatio;
      // Ends that went wrong are drawn last: they must not hide behind those that went well.
      for (const kind of [0, 1, 2]) {
        ctx.fillStyle = css(`--${KINDS[kind]}`);
        ctx.globalAlpha = kind === 0 ? 0.6 : 1;
        for (let i = 0; i < x.length; i++)
          if (k[i] === kind) marker(ctx, kind, u.valToPos(x[i], "x", true), u.valToPos(y[i], "y", true), size);
      }
      ctx.restore();
      return null;
    };
    const series = [{
      label: "answered in", paths: draw, points: { show: false }, stroke: css("--ok"),
      value: (u, v, s, i) => (i === null || i === undefined ? "–" : `${number(y[i])} ms, ${["ok", "typed error", "no answer"][k[i]]}`),
    }];
    return [options(row, height, decades(y), series, data.bands), [x, y]];
  }

  const scatter = (row, data) => points(row, data, data.calls.scatter, 240);
  const copies = (row, data) => points(row, data, data.copies, 190);

  function line(name, color, value, more = {}) {
    return { label: name, stroke: css(color), width: 1.5, value: (u, v) => (v === null ? "–" : value(v)), ...more };
  }

  function quantiles(row, data) {
    const { x, p50, p95, max } = data.calls.lines;
    const ms = (v) => `${number(v)} ms`;
    const points = { show: true, size: 3 };
    const series = [
      line("p50", "--ok", ms, { points }), line("p95", "--p95", ms, { points, dash: [6, 3] }),
      line("max", "--untyped", ms, { points, dash: [2, 3] }),
    ];
    return [options(row, 170, decades([...p50, ...max]), series, data.bands), [x, p50, p95, max]];
  }

  function rates(row, data) {
    const { x, ok, bad } = data.calls.lines;
    const per = (v) => `${number(v)}/s`;
    const stepped = { paths: uPlot.paths.stepped({ align: 0 }), points: { show: false } };
    const series = [
      line("ok", "--ok", per, stepped), line("not ok", "--untyped", per, { ...stepped, dash: [4, 3] }),
    ];
    const y = { scale: { range: (u, min, max) => [0, Math.max(max * 1.1, 1)] }, label: per };
    return [options(row, 130, y, series, data.bands), [x, ok, bad]];
  }

  /** Two staircases on one time axis: at each moment the last level of either. */
  function joined(a, b) {
    const x = [...new Set([...a.x, ...b.x])].sort((p, q) => p - q);
    const levels = (stairs) => {
      let i = 0, level = 0;
      return x.map((t) => {
        while (i < stairs.x.length && stairs.x[i] <= t) level = stairs.y[i++];
        return level;
      });
    };
    return [x, levels(a), levels(b)];
  }

  function clients(row, data) {
    const [x, up, there] = joined(data.clients.connected, data.clients.registered);
    if (x.length && x[x.length - 1] < data.seconds) {
      x.push(data.seconds);
      up.push(up[up.length - 1]);
      there.push(there[there.length - 1]);
    }
    const stepped = { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } };
    const series = [
      line("connected", "--ok", number, stepped),
      line("with a registration", "--p95", number, { ...stepped, dash: [6, 3] }),
    ];
    const y = { scale: { range: (u, min, max) => [0, Math.max(max * 1.1, 1)] }, label: number };
    return [options(row, 130, y, series, data.bands), [x, up, there]];
  }

  function bar(ctx, state, left, top, width, height) {
    ctx.fillStyle = css(`--life-${state}`);
    ctx.strokeStyle = css(`--life-${state}-edge`);
    ctx.lineWidth = devicePixelRatio;
    const thin = state === "cut" ? height / 3 : 0;
    ctx.fillRect(left, top + 2 * thin, width, height - 2 * thin);
    ctx.strokeRect(left, top + 2 * thin, width, height - 2 * thin);
    if (state !== "ready" && width > 64 * devicePixelRatio) {
      ctx.fillStyle = css("--text");
      ctx.fillText(state, left + 5 * devicePixelRatio, top + (state === "cut" ? height * 0.84 : height / 2));
    }
  }

  function lanes(row, data) {
    const names = data.lanes.map((lane) => lane.name);
    const draw = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      const height = (bbox.height / names.length) * 0.7;
      data.lanes.forEach((lane, i) => {
        const top = u.valToPos(i, "y", true) - height / 2;
        for (const span of lane.spans) {
          const left = u.valToPos(span.from, "x", true);
          bar(ctx, span.state, left, top, Math.max(u.valToPos(span.to, "x", true) - left, devicePixelRatio), height);
        }
      });
      ctx.restore();
    };
    const y = {
      scale: { range: [names.length - 0.5, -0.5], dir: 1 },
      label: (v) => names[v] || "",
      axis: { splits: names.map((_, i) => i), grid: { show: false } },
    };
    const none = { label: "", paths: () => null, points: { show: false } };
    const made = options(row, names.length * 26 + 38, y, [none], [], { legend: { show: false } });
    made.scales.y.range = (u) => [-0.5, names.length - 0.5];
    made.scales.y.dir = -1;
    made.hooks = { draw: [draw] };
    return [made, [[0, data.seconds], [null, null]]];
  }

  const CHARTS = { scatter, copies, lanes, quantiles, rates, clients };

  function build(details) {
    const row = details.dataset.row;
    const data = rows[row];
    if (!data || plots.has(row)) return;
    const made = [];
    for (const place of details.querySelectorAll("[data-chart]")) {
      const [opts, values] = CHARTS[place.dataset.chart](row, data);
      opts.width = Math.max(place.clientWidth, 320);
      opts.scales.x.range = (u, min, max) => (min === null || max <= min ? [0, data.seconds || 1] : [min, max]);
      const plot = new uPlot(opts, values, place);
      plot.setScale("x", { min: 0, max: data.seconds || 1 });
      plot.root.addEventListener("dblclick", () => plot.setScale("x", { min: 0, max: data.seconds || 1 }));
      made.push([plot, place, opts.height]);
    }
    plots.set(row, made);
  }

  function rebuild() {
    for (const [row, made] of plots) {
      for (const [plot] of made) plot.destroy();
      plots.delete(row);
    }
    document.querySelectorAll("details.row[open]").forEach(build);
  }

  function fit() {
    for (const made of plots.values())
      for (const [plot, place, height] of made)
        if (place.clientWidth) plot.setSize({ width: Math.max(place.clientWidth, 320), height });
  }

  function show(id) {
    const details = document.getElementById(id);
    if (details instanceof HTMLDetailsElement) {
      details.open = true;
      build(details);
    }
  }

  for (const details of document.querySelectorAll("details.row")) {
    details.addEventListener("toggle", () => details.open && build(details));
    if (details.open) build(details);
  }
  addEventListener("hashchange", () => show(location.hash.slice(1)));
  show(location.hash.slice(1));
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(fit, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  for (const button of document.querySelectorAll("button[data-open]"))
    button.addEventListener("click", () =>
      document.querySelectorAll("details.row").forEach((d) => (d.open = button.dataset.open === "yes")));
  for (const button of document.querySelectorAll("button[data-copy]"))
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
})();
