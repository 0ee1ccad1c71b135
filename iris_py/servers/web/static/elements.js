// Makes elements. Names come from the network: they become text, never markup.

/**
 * @param {string} tag
 * @param {Record<string, string | boolean | EventListener>} [attributes] with `onclick` and the like as functions
 * @param {...(Node | string | null)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/**
 * Replaces the children of an element, unless they are alike: selections and the focus stay.
 * @param {Element} parent @param {...Node} children
 */
export function fill(parent, ...children) {
  const same = parent.childNodes.length === children.length && children.every((child, index) => child === parent.childNodes[index]);
  if (!same) parent.replaceChildren(...children);
}

/** Sets a text if it is another one. @param {Node} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
