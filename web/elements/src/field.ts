// One input: it formats what is typed, keeps the caret in place, and shows errors. The value never leaves this frame
// except to the vault and, when fields are in separate frames, to the frame that sends the request.
import { h } from './frame';

/** What makes a field the number of a card, an IBAN or anything else. */
export interface Rules {
  name: string;
  autocomplete: string;
  attribute: string; // the name of the input, which autofill reads
  inputMode?: string; // default numeric
  maxLength?: number;
  /** The characters of a formatted value that count; the others are separators. */
  counts: RegExp;
  /** The characters of any text that count. */
  plain(text: string): string;
  /** The value of a text that was typed, or, unless typing, pasted or filled. */
  clean(text: string, typing: boolean): string;
  /** The value without what is too long. */
  cut(value: string): string;
  format(value: string, deleting: boolean): string;
  /** The code of the error; "" for a complete value. */
  check(value: string): string;
  /** Reports whether no further character is expected. */
  full(value: string): boolean;
  placeholder(): string;
  label(): string;
  /** Reports whether the code is shown as soon as the field is full, not when it is left. */
  early(code: string): boolean;
}

/** What a field tells the form around it. */
export interface Owner {
  edited(f: Field): void;
  changed(): void;
  move(f: Field, by: 1 | -1): void;
  say(type: string, more?: Record<string, unknown>): void;
  text(code: string): string;
  showErrors(): boolean;
}

export class Field {
  value = '';
  code = '';
  touched = false;
  shown = '';
  readonly name: string;
  readonly input = h('input', 'tk-input');
  readonly label = h('label', 'tk-label');
  readonly icon = h('span', 'tk-icon');
  readonly error = h('p', 'tk-error');
  readonly box: HTMLElement;

  constructor(readonly rules: Rules, private owner: Owner, alone: boolean) {
    const i = this.input, name = (this.name = rules.name);
    this.box = h('div', 'tk-field ' + name + (alone ? ' alone' : ''), this.label, h('div', 'tk-box', i, this.icon), this.error);
    Object.assign(i, { type: 'text', id: 'tk-' + name, inputMode: rules.inputMode ?? 'numeric', spellcheck: false, dir: 'ltr', name: rules.attribute });
    const attributes = { autocomplete: rules.autocomplete, autocorrect: 'off', autocapitalize: 'off', 'aria-required': 'true', 'aria-describedby': i.id + '-error' };
    for (const [k, v] of Object.entries(attributes)) i.setAttribute(k, v);
    if (rules.maxLength) i.maxLength = rules.maxLength;
    this.label.htmlFor = i.id;
    this.error.id = i.id + '-error';
    this.error.setAttribute('aria-live', 'polite');
    i.addEventListener('input', (e) => this.#typed(e as InputEvent));
    i.addEventListener('focus', () => owner.say('focus', { field: name }));
    i.addEventListener('blur', () => {
      this.touched ||= this.value !== '';
      this.show();
      owner.say('blur', { field: name });
      owner.changed();
    });
    i.addEventListener('keydown', (e) => {
      if (e.key === 'Enter') owner.say('submit');
      if (e.key === 'Backspace' && !i.value) {
        e.preventDefault();
        owner.move(this, -1);
      }
    });
    i.addEventListener('dragstart', (e) => e.preventDefault()); // values are not dragged into the page
    this.check();
  }

  /** Writes the texts, which depend on language and brand. */
  words(): void {
    this.label.textContent = this.rules.label();
    this.input.placeholder = this.rules.placeholder();
  }

  #typed(e: InputEvent): void {
    const i = this.input, { rules } = this, before = this.value, kind = e.inputType ?? 'replacement', deleting = /^delete/.test(kind);
    const caret = i.selectionStart ?? i.value.length, typed = rules.plain(i.value);
    let left = rules.plain(i.value.slice(0, caret)).length, value = deleting ? typed : rules.clean(i.value, !/paste|replacement/i.test(kind));
    if (deleting && value === before && i.value.length < rules.format(before, false).length) {
      // Only a gap was deleted: the character beside it is deleted instead.
      const at = kind === 'deleteContentForward' ? left : left - 1;
      if (at >= 0 && at < value.length) {
        value = value.slice(0, at) + value.slice(at + 1);
        if (at < left) left--;
      }
    }
    if (!deleting && value.length > typed.length) left += value.length - typed.length; // a zero was put before the month
    value = rules.cut(value);
    this.set(value, deleting, left);
    if (value !== before) this.owner.edited(this);
    if (!deleting && !this.code && left >= value.length && document.activeElement === i && rules.full(value)) this.owner.move(this, 1);
    else if (rules.full(value) && rules.early(this.code)) {
      this.touched = true;
      this.show();
    }
    this.owner.changed();
  }

  /** Sets the value, and the caret behind the first left characters of it. */
  set(value: string, deleting = false, left = value.length): void {
    const i = this.input, text = this.rules.format(value, deleting);
    this.value = value;
    if (i.value !== text) {
      i.value = text;
      if (document.activeElement === i) {
        let at = 0;
        for (let seen = 0; at < text.length && seen < left; at++) if (this.rules.counts.test(text[at])) seen++;
        if (!deleting) while (at < text.length && !this.rules.counts.test(text[at])) at++; // behind a gap when typing, before it when deleting
        i.setSelectionRange(at, at);
      }
    }
    this.check();
    if (this.shown && this.code !== this.shown) { // an error that is being corrected is not shown any more
      this.touched = false;
      this.show();
    }
  }

  check(): void { this.code = this.rules.check(this.value); }

  show(): void {
    this.check();
    this.shown = this.touched ? this.code : '';
    const i = this.input, text = this.shown ? this.owner.text(this.shown) : '';
    i.classList.toggle('invalid', !!this.shown);
    i.classList.toggle('complete', !this.code);
    i.setAttribute('aria-invalid', String(!!this.shown));
    if (this.error.textContent !== text) this.error.textContent = text;
    this.error.classList.toggle('tk-hide', !this.owner.showErrors());
  }
}
