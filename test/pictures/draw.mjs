// Draws the pictures that are given as JSON, {"name": "text of the picture"},
// and prints for each what was wrong with it, or "" when it came out.
//
// Pages are shown by forges, which draw with this library in a browser. Here
// the browser is a stand-in that measures nothing: every text has the same
// size. So what is proven is that a picture can be read and laid out, and not
// that it is pretty.
import { readFileSync } from 'node:fs';
import { JSDOM } from 'jsdom';

const { window } = new JSDOM('<!doctype html><body></body>', { pretendToBeVisual: true });
for (const name of ['window', 'document', 'Element', 'HTMLElement', 'SVGElement', 'Node', 'DOMParser', 'XMLSerializer']) {
  globalThis[name] = name === 'window' ? window : window[name];
}
window.SVGElement.prototype.getBBox = () => ({ x: 0, y: 0, width: 100, height: 20 });
window.SVGElement.prototype.getComputedTextLength = () => 100;

const { default: mermaid } = await import('mermaid');
mermaid.initialize({ startOnLoad: false, securityLevel: 'strict' });

const failures = {};
let number = 0;
for (const [name, text] of Object.entries(JSON.parse(readFileSync(0, 'utf8')))) {
  try {
    const { svg } = await mermaid.render(`picture-${++number}`, text);
    failures[name] = svg.includes('<svg') && !svg.includes('aria-roledescription="error"') ? '' : 'it came out as an error';
  } catch (error) {
    failures[name] = String(error.message || error);
  }
}
console.log(JSON.stringify(failures));
