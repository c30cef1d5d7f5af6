// The one script of the console: when a sample comes, it fetches the page again and puts its live
// part in the place of the old one. Without it a page is whole, and stands still.

const live = document.getElementById("live");
const health = document.getElementById("health");
let busy = false; // a fetch is under way
let again = false; // a sample came meanwhile
let still = false; // what is shown is over, and changes no more

async function look() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Part": "live" } });
    if (answer.status === 401) {
      location.reload(); // signed out: the server leads to where one signs in
      return;
    }
    // An error comes as a page too, and stands where the page stood.
    replace(await answer.text());
    document.body.classList.remove("old");
  } catch {
    document.body.classList.add("old");
  } finally {
    busy = false;
    if (again) {
      again = false;
      if (!still) {
        look();
      }
    }
  }
}

// replace keeps what somebody is at: what was typed, an open form or a selection is not taken away, and what was
// scrolled or had the focus is where it was.
function replace(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const said = parsed.getElementById("health");
  const next = parsed.getElementById("live");
  if (!said || !next) {
    return;
  }
  if (said.textContent !== health.textContent) {
    health.textContent = said.textContent; // only then, so that it is read aloud only then
    health.className = said.className;
  }
  const active = document.activeElement;
  const selection = getSelection();
  if (live.contains(active) && active.matches("input, textarea, select, button")) {
    return;
  }
  if (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) {
    return;
  }
  const typed = (field) =>
    field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  if ([...live.querySelectorAll("input, textarea")].some(typed)) {
    return;
  }
  // Only here: what was left as it was above is looked at again with the next sample.
  if ("still" in next.dataset) {
    still = true;
    events?.close();
  }
  if (next.innerHTML === live.innerHTML) {
    return;
  }
  const boxes = () => [...live.querySelectorAll(".scroll, pre")];
  const before = boxes();
  const scrolled = before.map((box) => [box.scrollLeft, box.scrollTop]);
  const href = live.contains(active) ? active.getAttribute("href") : null;
  const links = () => [...live.querySelectorAll(`[href="${CSS.escape(href)}"]`)]; // the map leads where its table does
  const link = href ? links().indexOf(active) : -1;
  const at = before.indexOf(active);
  live.replaceChildren(...next.childNodes);
  const after = boxes();
  if (after.length === before.length) {
    after.forEach((box, i) => box.scrollTo(...scrolled[i]));
    after[at]?.focus({ preventScroll: true });
  }
  if (href) {
    links()[link]?.focus({ preventScroll: true });
  }
}

let events;

function listen() {
  events?.close();
  events = new EventSource("/events");
  events.onmessage = look;
  events.onopen = () => document.body.classList.remove("away");
  events.onerror = () => {
    document.body.classList.add("away");
    if (events.readyState === EventSource.CLOSED) {
      look(); // it was refused, so the server answers: it leads to where one signs in
    }
  };
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events?.close();
  } else if (!still) {
    listen();
  }
});

if (!document.hidden) {
  listen();
}
