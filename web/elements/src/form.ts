// A page of fields: states for the page around it, values from the frames beside it, and the request that makes a token.
import { Field, type Owner, type Rules } from './field';
import { h, type Content, type Frame } from './frame';
import { list, own, random, str, type Bag } from './messages';
import { call, cancelled, Failed, sessionFor, type Session } from './vault';

const ANSWER_MS = 2000; // what the frames beside this one have to send their values

interface Part { name: string; value: string; code: string }

/** A request whose result is not known yet. Sending it again under the same idempotency key, in the same session, makes no second token. */
interface Attempt { body: string; idempotency: string; session: Session | null }

export interface FormOptions {
  /** The rules of the fields of this page, in order. */
  rules: Rules[];
  /** The names of fields that may be in frames beside this one, in their order for focus. */
  order: string[];
  /** The field whose frame sends the request. */
  main: string;
  /** The body of the request without metadata and containers. */
  body(value: (name: string) => string): { type: string; data: unknown };
  /** What the page is told of the token. */
  result(token: Bag): Bag;
  /** Applies options that only this form has. */
  options?(o: unknown): void;
  /** What the page is told beside the states of fields. */
  state?(): Bag;
  /** Is called for each message of a frame beside this one that no other case handles. */
  posted?(type: unknown, m: unknown): void;
  /** Is called after a change of a field, before the page is told. */
  edited?(f: Field): void;
  cleared?(): void;
}

export class Form implements Content, Owner {
  readonly fields: string[];
  readonly fonts = true;
  readonly all: Field[];
  #showErrors = true;
  #told = '';
  #attempt: Attempt | null = null;
  #waiting: { id: string; parts: Map<string, Part>; done: () => void } | null = null;

  constructor(readonly frame: Frame, private o: FormOptions) {
    this.all = o.rules.map((r) => new Field(r, this, o.rules.length === 1));
    this.fields = this.all.map((f) => f.name);
    document.body.append(h('div', 'tk-grid', ...this.all.map((f) => f.box)));
    for (const f of this.all) {
      f.words();
      if (f.input.value) f.set(''); // what a browser restored
    }
  }

  field(name: string): Field | undefined { return this.all.find((f) => f.name === name); }

  // For fields.
  say(type: string, more?: Bag): void { this.frame.say(type, more); }
  text(code: string): string { return this.frame.texts[code] ?? ''; }
  showErrors(): boolean { return this.#showErrors; }
  edited(f: Field): void {
    this.#attempt = null;
    this.o.edited?.(f);
  }
  move(from: Field, by: 1 | -1): void {
    const to = this.all[this.all.indexOf(from) + by];
    if (to) return to.input.focus();
    // Straight to the frame beside this one: a way through the page would race with the next key.
    const next = this.o.order[this.o.order.indexOf(from.name) + by];
    if (this.all.length === 1 && next) this.toSiblings('focus', { name: next });
  }
  /** Tells the page states, never values, and only when one differs: keystrokes cause no event. */
  changed(): void {
    const errors: Bag = {};
    for (const f of this.all) {
      f.input.classList.toggle('complete', !f.code);
      if (f.shown) errors[f.name] = { code: f.shown, message: this.text(f.shown) };
    }
    const now = { complete: this.all.every((f) => !f.code), empty: this.all.every((f) => !f.value), ...this.o.state?.(), errors };
    const text = JSON.stringify(now);
    if (text === this.#told) return;
    this.#told = text;
    this.say('change', now);
  }

  // For the frame.
  options(o: unknown): void {
    const errors = own(o, 'errors'), labels = own(o, 'labels'), disabled = own(o, 'disabled');
    if (typeof errors === 'boolean') this.#showErrors = errors;
    for (const f of this.all) {
      if (typeof labels === 'boolean') f.label.classList.toggle('tk-hide', !labels);
      if (typeof disabled === 'boolean') f.input.disabled = disabled;
    }
    this.o.options?.(o);
    for (const f of this.all) {
      f.words();
      f.show();
    }
  }
  heard(type: unknown, m: unknown): void {
    switch (type) {
      case 'focus': (this.field(str(m, 'field')) ?? this.all[0]).input.focus(); break;
      case 'blur': (document.activeElement as HTMLElement | null)?.blur(); break;
      case 'clear': this.clear(); break;
    }
  }
  request(type: unknown, m: unknown, id: string, signal: AbortSignal): Promise<Bag> | undefined {
    return type === 'tokenize' && this.field(this.o.main) ? this.#tokenize(m, id, signal) : undefined;
  }
  clear(): void {
    for (const f of this.all) {
      f.touched = false;
      f.set('');
      f.show();
    }
    this.#attempt = null;
    this.o.cleared?.();
    this.changed();
  }
  tellsHeight(): boolean { return true; }
  started(): void { this.changed(); }

  // Frames beside this one. A message goes from frame to frame with this origin as its target, so that the browser delivers it to
  // no other origin, that of the page included.
  toSiblings(type: string, more: Bag): void {
    for (let i = 0; i < parent.frames.length && i < 50; i++) {
      if (parent.frames[i] !== window) parent.frames[i].postMessage({ tokenkeep: type, group: this.frame.group, ...more }, location.origin);
    }
  }
  posted(e: MessageEvent): void {
    const { group, key } = this.frame, m = e.data, source = e.source as Window | null;
    if (e.origin !== location.origin || !source || source.parent !== parent || !group || own(m, 'group') !== group) return;
    const type = own(m, 'tokenkeep');
    switch (type) {
      case 'focus': this.field(str(m, 'name'))?.input.focus(); break;
      case 'ask': // by the frame that sends the request, which must be of the same application
        if (own(m, 'key') !== key || this.field(this.o.main)) return;
        this.#touch();
        source.postMessage({ tokenkeep: 'answer', group, id: str(m, 'id'), parts: this.#parts() }, location.origin);
        break;
      case 'answer': this.#answered(m); break;
      default: this.o.posted?.(type, m);
    }
  }
  #answered(m: unknown): void {
    const w = this.#waiting;
    if (!w || own(m, 'id') !== w.id) return;
    for (const p of list(m, 'parts')) {
      const name = str(p, 'name');
      if (this.o.order.includes(name) && !w.parts.has(name)) w.parts.set(name, { name, value: str(p, 'value', 40), code: str(p, 'code') });
    }
    w.done();
  }
  #parts(): Part[] { return this.all.map(({ name, value, code }) => ({ name, value, code })); }
  #touch(): void {
    for (const f of this.all) {
      f.touched = true;
      f.show();
    }
    this.changed();
  }
  async #gather(wanted: string[]): Promise<Part[]> {
    const parts = new Map(this.#parts().map((p) => [p.name, p])), rest = wanted.filter((n) => !parts.has(n));
    if (rest.length) {
      const id = random();
      await new Promise<void>((resolve) => {
        this.#waiting = { id, parts, done: () => rest.every((n) => parts.has(n)) && resolve() };
        this.toSiblings('ask', { id, key: this.frame.key });
        setTimeout(resolve, ANSWER_MS);
      });
      this.#waiting = null;
      const missing = rest.filter((n) => !parts.has(n));
      if (missing.length) throw new Failed('not_ready', 'A field did not respond.', { fields: missing });
    }
    return [...parts.values()];
  }

  async #tokenize(m: unknown, id: string, signal: AbortSignal): Promise<Bag> {
    const wanted = list(m, 'fields').filter((n): n is string => typeof n === 'string' && this.o.order.includes(n));
    this.#touch();
    const parts = await this.#gather(wanted), bad = parts.filter((p) => p.code);
    if (bad.length) {
      this.field(bad[0].name)?.input.focus();
      throw new Failed('incomplete', this.text(bad[0].code), { fields: bad.map((p) => p.name), codes: bad.map((p) => p.code) });
    }
    if (signal.aborted) throw cancelled();
    const body = JSON.stringify({ ...this.o.body((n) => parts.find((p) => p.name === n)?.value ?? ''), ...settable(m) });
    return this.o.result(await this.#send(m, id, body, signal));
  }
  async #send(m: unknown, id: string, body: string, signal: AbortSignal): Promise<Bag> {
    if (this.#attempt?.body !== body) this.#attempt = { body, idempotency: random(), session: null };
    const attempt = this.#attempt;
    if (!(attempt.session && performance.now() < attempt.session.until)) attempt.session = await sessionFor(this.frame, m, id, signal);
    try {
      const token = await call(this.frame, { method: 'POST', path: '/tokens', key: attempt.session.key, idempotency: attempt.idempotency, body, signal });
      this.#attempt = null;
      return token;
    } catch (e) {
      // A refusal is final. After anything else the token may exist, and the next request is this one again.
      if (e instanceof Failed && !['network', 'vault_failed', 'timeout', 'too_many'].includes(e.code) && this.#attempt === attempt) this.#attempt = null;
      throw e;
    }
  }
}

/** What the page may set of a token. A mask, an id, an index or a fingerprint is an expression over the values, and is not its to set. */
function settable(m: unknown): Bag {
  const metadata: Bag = {}, container = str(m, 'container'), given = own(m, 'metadata');
  for (const [k, v] of Object.entries(typeof given === 'object' && given ? given : {}).slice(0, 20)) {
    if (typeof v === 'string' && v.length <= 200 && /^[\w.-]{1,40}$/.test(k) && k !== '__proto__') metadata[k] = v;
  }
  return { ...(Object.keys(metadata).length && { metadata }), ...(container && { containers: [container] }) };
}
