// Styling by the page: an allow-list of properties and of values, applied through CSSOM only. No value becomes CSS text,
// so none can end its declaration, and none can name a resource.
import { own } from './messages';

const functions = new Set('rgb,rgba,hsl,hsla,hwb,lab,lch,oklab,oklch,color,color-mix,calc,min,max,clamp'.split(','));
const box = 'background-color,border-color,border-width,border-style,border-radius,border-bottom-color,border-bottom-width,border-top-width,border-left-width,border-right-width,box-shadow,padding,';
const text = 'color,font-family,font-size,font-style,font-weight,letter-spacing,line-height,text-transform,';
const input = new Set((box + text + 'caret-color,font-variant-numeric,text-align').split(','));
const words = new Set((text + 'text-align,padding').split(','));
const hint = new Set('color,font-style,font-weight'.split(','));

/** The states that can be styled: the rule of field.css, and the properties. */
const states: Record<string, [string, Set<string>]> = {
  input: ['.tk-input', input], 'input:hover': ['.tk-input:hover', input], 'input:focus': ['.tk-input:focus', input], 'input:invalid': ['.tk-input.invalid', input],
  'input:complete': ['.tk-input.complete', input], 'input:disabled': ['.tk-input:disabled', input],
  placeholder: ['.tk-input::placeholder', hint], label: ['.tk-label', words], error: ['.tk-error', words],
};

/** The variables, each with the property that its value must be valid for. */
const variables: Record<string, string> = {
  colorPrimary: 'color', colorText: 'color', colorTextSecondary: 'color', colorPlaceholder: 'color', colorBackground: 'color', colorBorder: 'color', colorDanger: 'color', colorFocusRing: 'color',
  fontFamily: 'font-family', fontSize: 'font-size', fontWeight: 'font-weight', labelSize: 'font-size', labelWeight: 'font-weight',
  borderRadius: 'border-radius', borderWidth: 'border-width', paddingX: 'padding-left', paddingY: 'padding-top', gap: 'padding-left',
};

function safe(property: string, value: unknown): value is string {
  if (typeof value !== 'string' || value.length > 200 || !/^[\w\s#%.,()+\-/"']+$/.test(value)) return false;
  for (const m of value.matchAll(/([\w-]*)\s*\(/g)) if (!functions.has(m[1].toLowerCase())) return false;
  if (property === 'line-height' && !/^\d/.test(value)) return false; // normal depends on the glyphs
  // Sizes that move the digits out of sight, or make the frame cover the page, are refused, and so is what makes small numbers large.
  if (/(calc|min|max|clamp)\(.*\//i.test(value)) return false;
  for (const [, n, unit] of value.matchAll(/(?<![#\w.])([\d.]+)([\w%+-]*)/g)) {
    if (/^e[\d+-]/i.test(unit) || +n > (/^(deg)?$/i.test(unit) ? 1000 : /^(px|pt|%)$/i.test(unit) ? 100 : /^(r?em|v.*|ch|ex)$/i.test(unit) ? 8 : 1)) return false;
  }
  return CSS.supports(property, value);
}

const entries = (o: unknown): [string, unknown][] => (typeof o === 'object' && o ? Object.entries(o).slice(0, 60) : []);

/** Applies what is allowed, and returns the names of the rest. */
export function applyAppearance(sheet: CSSStyleSheet, root: HTMLElement, look: unknown): string[] {
  const refused: string[] = [];
  for (const [name, value] of entries(own(look, 'variables'))) {
    const property = Object.hasOwn(variables, name) ? variables[name] : '';
    if (property && safe(property, value)) root.style.setProperty('--' + name, value);
    else refused.push('variables.' + name.slice(0, 40));
  }
  for (const [state, properties] of entries(own(look, 'rules'))) {
    const known = Object.hasOwn(states, state) ? states[state] : null;
    const rule = known && ([...sheet.cssRules] as CSSStyleRule[]).reverse().find((r) => r.selectorText === known[0]);
    for (const [name, value] of entries(properties)) {
      const property = name.replace(/[A-Z]/g, (c) => '-' + c.toLowerCase());
      if (rule && known[1].has(property) && safe(property, value)) rule.style.setProperty(property, value);
      else refused.push(`rules.${state.slice(0, 40)}.${name.slice(0, 40)}`);
    }
  }
  return refused;
}
