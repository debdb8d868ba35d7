// Peers' text becomes text nodes, never markup.

const LINK = /https?:\/\/[^\s<>"'`]+/gi;

/** Fills `element` with text in which http and https addresses are links. */
export function fill(element, text) {
  element.replaceChildren();
  let end = 0;
  for (const match of text.matchAll(LINK)) {
    const address = match[0].replace(/[.,;:!?)\]}]+$/, "");
    const href = parse(address);
    if (!href) continue;
    element.append(text.slice(end, match.index));
    const link = document.createElement("a");
    link.href = href;
    link.rel = "noopener noreferrer nofollow";
    link.target = "_blank";
    link.textContent = address;
    element.append(link);
    end = match.index + address.length;
  }
  element.append(text.slice(end));
}

function parse(address) {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** A colour for a name, the same on every page. */
export function hue(id) {
  let hash = 0;
  for (const char of id) hash = (hash * 31 + char.codePointAt(0)) >>> 0;
  return hash % 360;
}

export function initial(name) {
  const segment = new Intl.Segmenter().segment(name.trim())[Symbol.iterator]().next().value?.segment ?? "?";
  return segment.slice(0, 8).toLocaleUpperCase();
}
