"use strict";
// Pages work without this: it adds the theme's button, sorting, filters and the slider.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const theme = stored();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;

  // State that a link can carry: #p.<chart>=1.5&s.<table>=2d&q.<table>=text
  const state = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const remember = (key, value) => {
    const all = state();
    if (value) all.set(key, value); else all.delete(key);
    history.replaceState(null, "", "#" + all);
  };

  const make = (name, attributes, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const themeButton = () => {
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const button = make("button", { type: "button", class: "theme" });
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", (dark() ? "Light" : "Dark") + " colours"); };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private windows have no storage */ }
      name();
    });
    name();
    document.querySelector(".site-nav").append(button);
  };

  const cellValue = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v ?? cell.textContent.trim();
  };
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
  };

  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const sort = (column, descending) => {
      const rows = [...body.rows];
      rows.sort((one, other) => {
        const [a, b] = [cellValue(one, column), cellValue(other, column)];
        if (a === "" || b === "") return (a === "") - (b === "");
        return descending ? compare(b, a) : compare(a, b);
      });
      body.append(...rows);
      heads.forEach((head, at) => {
        if (at === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    };
    heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const descending = now ? now === "ascending" : head.classList.contains("num") && !head.hasAttribute("data-up");
        sort(column, descending);
        remember("s." + table.id, column + (descending ? "d" : "a"));
      });
      head.append(button);
    });
    const linked = /^(\d+)([ad])$/.exec(state().get("s." + table.id) || "");
    if (linked && heads[linked[1]]) sort(Number(linked[1]), linked[2] === "d");
  };

  const filterable = (table) => {
    const body = table.tBodies[0];
    if (body.rows.length < 12 && table.id !== "live-verdicts") return;
    const input = make("input", { type: "search", id: "filter-" + table.id, autocomplete: "off", spellcheck: "false" });
    const count = make("span", { role: "status" });
    const apply = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = wanted.length ? shown + " of " + body.rows.length : "";
    };
    table.addEventListener("rows", apply);
    input.addEventListener("input", () => { apply(); remember("q." + table.id, input.value); });
    table.parentElement.before(make("p", { class: "filter" }, make("label", { for: input.id }, "Filter "), input, count));
    input.value = state().get("q." + table.id) || "";
    apply();
  };

  const slider = (box) => {
    const svg = box.querySelector("svg");
    const input = box.querySelector("input");
    const count = Number(box.dataset.count);
    const totals = box.dataset.total.split(" ").map(Number);
    const forwards = box.dataset.forward.split(" ").map(Number);
    const scale = (attribute) => {
      const [low, high, start, end] = attribute.split(" ").map(Number);
      return (value) => start + ((value - low) / (high - low)) * (end - start);
    };
    const [x, y] = [scale(svg.dataset.x), scale(svg.dataset.y)];
    const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : share > 0.99 && share < 1 ? ">99%" : Math.round(share * 100) + "%");
    const apply = () => {
      const step = Math.round(Number(input.value) * 20);
      const [total, forward] = [totals[step] / count, forwards[step] / count];
      const at = x(Number(input.value));
      const place = (selector, values) => {
        for (const [key, value] of Object.entries(values)) svg.querySelector(selector).setAttribute(key, value);
      };
      place(".cursor", { x1: at, x2: at });
      place(".dot.total", { cx: at, cy: y(total) });
      place(".dot.forward", { cx: at, cy: y(forward) });
      const label = "p = " + Number(input.value) + ": " + percent(total) + " forward and backward, " + percent(forward) + " forward";
      box.querySelector("output").textContent = label;
      input.setAttribute("aria-valuetext", label);
      for (const cell of document.querySelectorAll('[data-fast="' + box.id + '"]')) {
        const [fast, of] = [Number(cell.dataset.steps.split(" ")[step]), Number(cell.dataset.of)];
        cell.textContent = percent(fast / of);
        cell.dataset.v = fast / of;
      }
      for (const name of document.querySelectorAll('[data-fast-name="' + box.id + '"]')) name.textContent = Number(input.value);
    };
    box.querySelector(".slider").hidden = false;
    const linked = Number(state().get("p." + box.id) ?? 1);
    input.value = linked >= 0 && linked <= 3 ? linked : 1;
    input.addEventListener("input", () => { apply(); remember("p." + box.id, input.value); });
    apply();
  };

  // The live page of `grader serve` only: the server renders and escapes the rows.
  const live = (place) => {
    const most = 200;
    const runs = document.querySelector("#runs-table tbody");
    const verdicts = document.querySelector("#live-verdicts tbody");
    const say = (text, connected) => { place.textContent = text; place.classList.toggle("connected", connected); };
    let since = place.dataset.since;
    let reached = 0;
    const waiting = () => say(reached ? "Connected; " + reached + (reached === 1 ? " verdict" : " verdicts") + " since this page was opened." : "Connected; waiting for verdicts.", true);
    const connect = () => {
      const source = new EventSource(place.dataset.events + "?since=" + since);
      source.addEventListener("open", waiting);
      source.addEventListener("verdict", (event) => {
        since = event.lastEventId;
        verdicts.insertAdjacentHTML("afterbegin", JSON.parse(event.data).row);
        verdicts.querySelectorAll(".new").forEach((row) => row.classList.remove("new"));
        verdicts.rows[0].classList.add("new");
        while (verdicts.rows.length > most) verdicts.rows[verdicts.rows.length - 1].remove();
        verdicts.parentElement.dispatchEvent(new Event("rows"));
        reached += 1;
        waiting();
      });
      source.addEventListener("runs", (event) => { runs.innerHTML = JSON.parse(event.data).rows; });
      source.addEventListener("error", () => {
        say("Not connected; reconnecting.", false);
        // The browser reconnects by itself, unless the server refused the connection.
        if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
      });
      addEventListener("pagehide", () => source.close(), { once: true });
    };
    say("Connecting.", false);
    connect();
  };

  const openTarget = () => {
    const id = location.hash.slice(1);
    const target = id && !id.includes("=") && document.getElementById(id);
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  };

  const lineLinks = (source) => source.addEventListener("click", (event) => {
    const line = event.target.closest(".l");
    if (line && event.clientX < line.getBoundingClientRect().left + 44) location.hash = line.id;
  });

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll(".fast-p").forEach(slider);
    document.querySelectorAll("table.sortable").forEach((table) => { sortable(table); filterable(table); });
    document.querySelectorAll("pre.source").forEach(lineLinks);
    document.querySelectorAll("#live").forEach(live);
    openTarget();
    addEventListener("hashchange", openTarget);
    addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  });
})();
