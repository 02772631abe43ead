"use strict";
// Sorts tables, searches them and pages through them. The document holds one page of rows at a time, so that
// thousands of rows cost no more than a few. Cells are set as text, never as HTML.
(() => {
  const value = (text) => {
    if (text === "inf") return Infinity;
    if (text === "-inf") return -Infinity;
    return text.trim() === "" ? NaN : Number(text);
  };
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  const cell = (text, column, isHead) => {
    const made = document.createElement(isHead ? "th" : "td");
    if (isHead) made.scope = "row";
    made.className = column.number ? "number" : !isHead && text.length > 40 ? "text long" : "text";
    made.textContent = text;
    const number = value(text);
    const low = column.below !== null && number < column.below;
    const high = column.above !== null && number > column.above;
    if (!isHead && (low || high)) {
      made.classList.add("marked");
      const unseen = document.createElement("span");
      unseen.className = "unseen";
      unseen.textContent = " (out of range)";
      made.append(unseen);
    }
    return made;
  };

  // Orders the rows by a column. Values that are not numbers come last in both directions.
  const order = (rows, at, column, descending) => {
    const sign = descending ? -1 : 1;
    const places = rows.map((_, i) => i);
    if (!column.number) return places.sort((a, b) => sign * words.compare(rows[a][at], rows[b][at]) || a - b);
    const values = rows.map((row) => value(row[at]));
    return places.sort((a, b) => {
      const lacking = Number.isNaN(values[a]) - Number.isNaN(values[b]);
      if (lacking) return lacking;
      return values[a] === values[b] || Number.isNaN(values[a]) ? a - b : values[a] < values[b] ? -sign : sign;
    });
  };

  const states = new WeakMap();

  const begin = (table, kept) => {
    const { columns, rows } = JSON.parse(table.querySelector("script").textContent);
    const body = table.querySelector("tbody");
    const heads = [...table.querySelectorAll("thead th")];
    const labels = heads.map((head) => head.textContent);
    const search = table.querySelector("input");
    const select = table.querySelector("select");
    const [before, after] = [table.querySelector(".before"), table.querySelector(".after")];
    const state = table.querySelector(".state");
    const names = rows.map((row) => row[0].toLowerCase());
    let size = Number(table.dataset.size);
    let sorted = rows.map((_, i) => i);
    let found = sorted;
    let first = 0;
    let by = null;
    let descending = false;

    const show = () => {
      const shown = found.slice(first, first + size);
      body.replaceChildren(...shown.map((i) => {
        const row = document.createElement("tr");
        row.append(...rows[i].map((text, at) => cell(text, columns[at], at === 0)));
        return row;
      }));
      const range = shown.length ? `Rows ${first + 1} to ${first + shown.length} of ${found.length}` : "No rows";
      const all = found.length < rows.length ? ` that match, of ${rows.length}` : "";
      const way = by === null ? "" : `, by ${labels[by]}, ${descending ? "descending" : "ascending"}`;
      state.textContent = range + all + way;
      // A disabled button would lose the focus, so these buttons are only marked as disabled.
      before.setAttribute("aria-disabled", String(first === 0));
      after.setAttribute("aria-disabled", String(first + size >= found.length));
      table.querySelector(".pages").hidden = found.length <= size && first === 0;
    };
    const look = () => {
      const parts = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = parts.length ? sorted.filter((i) => parts.every((part) => names[i].includes(part))) : sorted;
      first = 0;
      show();
    };
    const arrange = () => {
      sorted = by === null ? rows.map((_, i) => i) : order(rows, by, columns[by], descending);
      heads.forEach((head, i) => {
        head.setAttribute("aria-sort", i !== by ? "none" : descending ? "descending" : "ascending");
      });
      look();
    };
    // A third click restores the original order.
    const sort = (at) => {
      const start = columns[at].descending;
      if (by !== at) [by, descending] = [at, start];
      else if (descending === start) descending = !start;
      else by = null;
      arrange();
    };

    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = labels[at];
      button.addEventListener("click", () => sort(at));
      head.replaceChildren(button);
    });
    search.addEventListener("input", look);
    select.addEventListener("change", () => {
      size = Number(select.value);
      first = Math.floor(first / size) * size;
      show();
    });
    before.addEventListener("click", () => {
      first = Math.max(0, first - size);
      show();
    });
    after.addEventListener("click", () => {
      if (first + size < found.length) first += size;
      show();
    });
    const tools = table.querySelector(".tools");
    tools.hidden = "short" in tools.dataset;
    states.set(table, () => ({ search: search.value, size, by, descending, first }));
    if (kept && (kept.by === null || kept.by < heads.length)) {
      search.value = kept.search;
      select.value = String(kept.size);
      ({ size, by, descending } = kept);
      arrange();
      if (kept.first < found.length) first = kept.first;
    }
    show();
  };

  // A page that gets new content starts its new tables in the states of the old ones.
  const all = (root) => [...root.querySelectorAll("div.table")];
  window.tableStates = (root) => Object.fromEntries(all(root).map((table) => [table.id, states.get(table)()]));
  window.beginTables = (root, kept = {}) => all(root).forEach((table) => begin(table, kept[table.id]));
  window.beginTables(document);
})();
