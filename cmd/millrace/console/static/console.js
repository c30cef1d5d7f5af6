// The one script of the console: when a sample comes, it fetches the page again and puts its live
// part in the place of the old one. Without it a page is whole, and stands still.

const live = document.getElementById("live");
const health = document.getElementById("health");
let busy = false; // a fetch is under way
let again = false; // a sample came meanwhile

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
      look();
    }
  }
}

// replace keeps what somebody is at: an open form or a selection is not taken away, and what was
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
  if (next.innerHTML === live.innerHTML) {
    return;
  }
  const boxes = () => [...live.querySelectorAll(".scroll, pre")];
  const before = boxes();
  const scrolled = before.map((box) => [box.scrollLeft, box.scrollTop]);
  const href = live.contains(active) ? active.getAttribute("href") : null;
  const at = before.indexOf(active);
  live.replaceChildren(...next.childNodes);
  const after = boxes();
  if (after.length === before.length) {
    after.forEach((box, i) => box.scrollTo(...scrolled[i]));
    after[at]?.focus({ preventScroll: true });
  }
  if (href) {
    live.querySelector(`[href="${CSS.escape(href)}"]:not([tabindex="-1"])`)?.focus({ preventScroll: true });
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
  } else {
    listen();
  }
});

if (!document.hidden) {
  listen();
}
