// What all pages inside frames share: the handshake with the page, its requests, and the looks.
import { list, own, str, VERSION, type Bag } from './messages';
import { applyAppearance } from './style';
import { textsOf, type Texts } from './texts';
import { Failed } from './vault';

/** A page of fields, or the page that shows a card. */
export interface Content {
  /** The names of the fields of this page. */
  fields: string[];
  /** Applies the options that only this page has. */
  options(o: unknown): void;
  /** Handles a message of the page. */
  heard(type: unknown, m: unknown): void;
  /** Handles a message that a window posted. */
  posted?(e: MessageEvent): void;
  /** Performs a request of the page; undefined when the page has no such request. */
  request(type: unknown, m: unknown, id: string, signal: AbortSignal): Promise<Bag> | undefined;
  /** Removes everything that was entered or shown. */
  clear(): void;
  /** Reports whether the page may be told the height. */
  tellsHeight(): boolean;
  /** Reports whether fonts of the page are used. */
  fonts: boolean;
  /** Tells the page its first state. */
  started(): void;
}

const meta = (name: string) => (document.querySelector(`meta[name=tk-${name}]`) as HTMLMetaElement).content;

/** Makes an element with a class. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, ...inside: (Node | string)[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  e.className = className;
  e.append(...inside);
  return e;
}

export class Frame {
  readonly key: string;
  readonly kind: string;
  readonly prefix = meta('prefix');
  readonly origins = meta('origins').split(' ').filter(Boolean); // empty: any, in development
  readonly root = document.documentElement;
  texts: Record<string, string>;
  group = '';
  #port: MessagePort | null = null;
  #content!: Content;
  #running: { id: string; abort: AbortController; ended: Promise<void> } | null = null;
  #authorizations = new Map<string, (ok: boolean) => void>();

  constructor(private readonly table: Texts) {
    [this.key, this.kind] = location.pathname.split('/').slice(-2);
    this.texts = textsOf(table, 'en');
  }

  /** Tells the page something. Everything that the page learns goes through here. */
  say(type: string, more: Bag = {}): void { this.#port?.postMessage({ type, ...more }); }

  /** Waits for the page to report that it had a session authorized. */
  authorization(id: string): Promise<boolean> {
    return new Promise((resolve) => { this.#authorizations.set(id, resolve); });
  }

  size(): void {
    if (this.#content.tellsHeight()) this.say('size', { height: Math.ceil(document.body.getBoundingClientRect().height) });
  }

  start(content: Content): void {
    this.#content = content;
    addEventListener('message', (e) => this.#init(e));
    if (content.posted) addEventListener('message', (e) => content.posted!(e));
    // The back button, the cache of pages and restored sessions find empty fields.
    addEventListener('pagehide', () => { this.#running?.abort.abort(); content.clear(); });
    addEventListener('pageshow', (e) => { if (e.persisted) content.clear(); });
    // The browser's reports of errors may hold values.
    addEventListener('error', (e) => e.preventDefault());
    addEventListener('unhandledrejection', (e) => e.preventDefault());
  }

  /** Accepts a port: once, from the parent window itself, from an origin on the list. */
  #init(e: MessageEvent): void {
    if (this.#port || e.source !== parent || parent === window || self.origin !== location.origin || e.ports.length !== 1) return;
    if (own(e.data, 'tokenkeep') !== 'init' || own(e.data, 'version') !== VERSION) return;
    if (this.origins.length && !this.origins.includes(e.origin)) return;
    this.#port = e.ports[0];
    this.group = str(e.data, 'group', 64);
    this.#port.onmessage = (m) => this.#heard(m.data);
    this.#options(own(e.data, 'options'));
    new ResizeObserver(() => this.size()).observe(document.body);
    this.size();
    this.say('ready', { fields: this.#content.fields, title: this.texts['title_' + this.kind] ?? this.texts[this.kind] });
    this.#content.started();
  }

  #heard(m: unknown): void {
    const type = own(m, 'type'), id = str(m, 'id', 64);
    switch (type) {
      case 'options': this.#options(own(m, 'options')); break;
      case 'authorized': this.#authorizations.get(id)?.(own(m, 'ok') === true); break;
      case 'cancel': if (this.#running?.id === id) this.#running.abort.abort(); break;
      case 'tokenize': case 'reveal': void this.#request(type, m, id); break;
      default: this.#content.heard(type, m);
    }
  }

  /** Performs one request at a time. A request that follows a cancelled one waits until that has ended. */
  async #request(type: string, m: unknown, id: string): Promise<void> {
    while (this.#running?.abort.signal.aborted) await this.#running.ended;
    if (this.#running) return this.#done(id, new Failed('busy', 'A request is in progress.'));
    const abort = new AbortController(), work = this.#content.request(type, m, id, abort.signal);
    if (!work) return;
    const ended = work.then((value) => this.say('done', { id, ok: true, value }), (e) => this.#done(id, e)).finally(() => {
      this.#running = null;
      this.#authorizations.delete(id);
    });
    this.#running = { id, abort, ended };
    await ended;
  }

  #done(id: string, e: unknown): void {
    const f = e instanceof Failed ? e : new Failed('internal', 'The field failed.');
    this.say('done', { id, ok: false, error: { code: f.code, message: f.message, ...f.more } });
  }

  #options(o: unknown): void {
    const { root } = this, locale = str(o, 'locale');
    if (/^[A-Za-z-]{2,20}$/.test(locale)) {
      root.lang = locale;
      this.texts = textsOf(this.table, locale);
    }
    const texts = own(o, 'texts');
    for (const name of Object.keys(this.texts)) {
      const text = str(texts, name);
      if (text) this.texts[name] = text;
    }
    if (str(o, 'theme')) root.classList.toggle('dark', str(o, 'theme') === 'dark');
    if (str(o, 'dir')) root.dir = str(o, 'dir') === 'rtl' ? 'rtl' : 'ltr';
    const refused = applyAppearance(document.styleSheets[0], root, own(o, 'appearance'));
    this.#fonts(list(o, 'fonts'), refused);
    if (refused.length) this.say('refused', { what: refused });
    this.#content.options(o);
  }

  /** Fonts come as bytes: there is no address, so no request that a typed digit could cause. */
  #fonts(fonts: unknown[], refused: string[]): void {
    for (const f of fonts.slice(0, 4)) {
      const data = own(f, 'data'), family = str(f, 'family', 60), weight = str(f, 'weight');
      if (!this.#content.fonts || !(data instanceof ArrayBuffer) || data.byteLength > 300_000 || !/^[\w -]+$/.test(family)) {
        refused.push('fonts');
        continue;
      }
      new FontFace(family, data, { weight: /^\d{3}( \d{3})?$/.test(weight) ? weight : '400' }).load()
        .then((face) => document.fonts.add(face), () => this.say('refused', { what: ['fonts.' + family] }));
    }
  }
}
