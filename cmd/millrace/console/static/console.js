// The one script of the console: when a sample comes, it fetches the page again and puts its live
// part in the place of the old one. Without it a page is whole, and stands still.

const live = document.getElementById("live");
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
    if (answer.ok) {
      replace(await answer.text());
    }
  } catch {
    // The server is away; EventSource tries again, and its first event looks again.
  } finally {
    busy = false;
    if (again) {
      again = false;
      look();
    }
  }
}

// replace keeps what somebody is at: an open form or a selection is not taken away.
function replace(html) {
  const selection = getSelection();
  if (live.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button")) {
    return;
  }
  if (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) {
    return;
  }
  const parsed = new DOMParser().parseFromString(html, "text/html").getElementById("live");
  if (!parsed || parsed.innerHTML === live.innerHTML) {
    return;
  }
  const focused = document.activeElement && live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  live.replaceChildren(...parsed.childNodes);
  if (focused) {
    live.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

let events;

function listen() {
  events = new EventSource("/events");
  events.onmessage = look;
  events.onopen = () => document.body.classList.remove("away");
  events.onerror = () => document.body.classList.add("away");
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events?.close();
  } else {
    listen();
  }
});

listen();
