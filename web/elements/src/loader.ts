// What a shop's page loads. It makes frames, gives each a port, and passes states on. It never sees a value.
import { own, random, VERSION, type Bag } from './messages';

export type Kind = 'card' | 'number' | 'expiry' | 'cvc' | 'reveal' | 'bank' | 'iban' | 'text';
export type FieldName = 'number' | 'expiry' | 'cvc' | 'routing' | 'account' | 'iban' | 'text';
export interface Appearance { theme?: 'light' | 'dark' | 'auto'; variables?: Record<string, string>; rules?: Record<string, Record<string, string>> }
export interface FontSource { family: string; src: string; weight?: string }
export interface ElementsOptions {
  /** The key of a public application. */
  key: string;
  /** The address of the vault; that of the loader when it is missing. */
  vault?: string;
  /** The language of the texts: en, de, fr, es, pt or ja; that of the page when it is missing. */
  locale?: string;
  dir?: 'ltr' | 'rtl';
  appearance?: Appearance;
  fonts?: FontSource[];
  texts?: Record<string, string>;
  loadTimeout?: number;
}
export interface ElementOptions { layout?: 'stacked' | 'line'; labels?: boolean; errors?: boolean; disabled?: boolean; accept?: string[]; format?: 'text' | 'ssn' | 'ein'; title?: string; texts?: Record<string, string> }
export interface ChangeEvent { complete: boolean; empty: boolean; brand?: string; errors: Partial<Record<FieldName, { code: string; message: string }>> }
/** A stored value; brand and last4 are empty for values that are no card. */
export interface Token { id: string; type: string; brand: string; last4: string }
/** Has the session of a nonce authorized, by a request to the shop's server. */
export type Authorize = (nonce: string) => Promise<unknown>;
export interface TokenizeOptions { authorize?: Authorize; session?: string; metadata?: Record<string, string>; container?: string; timeout?: number }
export interface RevealOptions { token: string; authorize: Authorize; copy?: boolean; seconds?: number; timeout?: number }
export interface Events { ready: undefined; change: ChangeEvent; focus: { field: FieldName }; blur: { field: FieldName }; submit: undefined; refused: { what: string[] }; hidden: undefined }

export class TokenkeepError extends Error {
  readonly code: string;
  readonly fields: string[];
  readonly trace?: string;
  constructor(code: string, message: string, more: Bag = {}) {
    super(message);
    this.name = 'TokenkeepError';
    this.code = code;
    this.fields = Array.isArray(more.fields) ? more.fields.map(String) : [];
    if (typeof more.trace === 'string') this.trace = more.trace;
  }
}

const script = typeof document === 'undefined' ? null : document.currentScript; // of a bundle inside the page it has no address
const here = script instanceof HTMLScriptElement && script.src ? new URL(script.src).origin : '';
const EDGE = 4; // pixels around the fields inside the frame, for focus rings
const CANCEL_MS = 2000; // what a frame has to respond to cancel
const blank = (): ChangeEvent => ({ complete: false, empty: true, errors: {} });

const senders: Kind[] = ['card', 'number', 'bank', 'iban', 'text']; // whose frames send the request

interface Waiting { resolve(value: unknown): void; reject(e: Error): void; authorize?: Authorize }

export class CardElement {
  frame: HTMLIFrameElement | null = null;
  state = blank();
  #port: MessagePort | null = null;
  #listeners = new Map<string, Set<(e: never) => void>>();
  #waiting = new Map<string, Waiting>();
  #ready: Promise<void> | null = null;
  #failReady: (e: Error) => void = () => {};
  #unwatch = () => {};
  constructor(readonly kind: Kind, readonly elements: Elements, private options: ElementOptions) {}

  /** Puts the frame into the page. */
  mount(where: string | Element): this {
    const target = typeof where === 'string' ? document.querySelector(where) : where;
    if (!target) throw new TokenkeepError('no_target', `No element matches ${String(where)}.`);
    if (this.frame) throw new TokenkeepError('mounted', 'The element is already mounted.');
    const f = document.createElement('iframe'), { elements } = this;
    f.title = this.options.title ?? 'Secure form';
    f.src = `${elements.vault}/elements/v1/${encodeURIComponent(elements.options.key)}/${this.kind}`; // set before the frame is in the page: no entry in the history
    if (this.kind === 'reveal') f.allow = 'clipboard-write';
    f.setAttribute('referrerpolicy', 'no-referrer');
    f.setAttribute('scrolling', 'no');
    f.style.cssText = `display:block;border:0;margin:-${EDGE}px;width:calc(100% + ${2 * EDGE}px);min-width:0;max-width:none;height:${this.kind === 'card' ? 172 : 80}px;background:transparent;color-scheme:${elements.theme()}`;
    this.frame = f;
    this.#ready = new Promise((resolve, reject) => {
      this.#failReady = reject;
      const timer = setTimeout(() => reject(new TokenkeepError('load_failed', 'The fields did not load. Check that this origin is in allowed_origins of the application, and that frame-src of this page allows the vault.')), elements.options.loadTimeout ?? 15_000);
      f.addEventListener('load', () => this.#connect(f, () => { clearTimeout(timer); resolve(); }));
    });
    this.#ready.catch(() => {});
    this.#unwatch = elements.onTheme(() => {
      f.style.colorScheme = elements.theme();
      this.#send('options', { options: { theme: elements.theme() } });
    });
    target.append(f);
    elements.list.add(this);
    return this;
  }

  /** Gives a frame that has loaded a new port. Only the vault's origin can receive it. */
  #connect(f: HTMLIFrameElement, ready: () => void): void {
    if (this.frame !== f) return;
    const { port1, port2 } = new MessageChannel(), { elements } = this;
    this.#port?.close();
    this.#port = port1;
    port1.onmessage = (e) => { if (this.#port === port1) this.#heard(e.data, ready); };
    void elements.fonts.then((fonts) => {
      if (this.#port === port1) f.contentWindow?.postMessage({ tokenkeep: 'init', version: VERSION, group: elements.group, options: { ...this.#options(), fonts } }, elements.vault, [port2]);
    });
  }

  unmount(): void {
    this.#unwatch();
    this.#port?.close();
    this.#port = null;
    this.frame?.remove();
    this.frame = this.#ready = null;
    this.elements.list.delete(this);
    const gone = new TokenkeepError('unmounted', 'The element was unmounted.');
    this.#failReady(gone);
    for (const w of [...this.#waiting.values()]) w.reject(gone);
    this.state = blank();
  }

  /** Resolves when the fields can be used. */
  ready(): Promise<void> { return this.#ready ?? Promise.reject(new TokenkeepError('not_mounted', 'The element is not mounted.')); }

  /** Adds a listener, and returns a function that removes it. */
  on<K extends keyof Events>(type: K, listener: (e: Events[K]) => void): () => void {
    const set = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, set.add(listener as never));
    return () => set.delete(listener as never);
  }
  focus(field?: FieldName): void { this.#send('focus', { field }); } // the frame takes the focus itself: frame.focus() would race with it
  blur(): void { this.#send('blur'); }
  clear(): void { this.#send('clear'); }
  setDisabled(disabled: boolean): void { this.update({ disabled }); }
  update(options: ElementOptions & { appearance?: Appearance }): void {
    this.options = { ...this.options, ...options };
    this.#send('options', { options });
  }

  /** Shows a card in a frame of kind reveal. */
  async reveal({ authorize, timeout = 90_000, token, copy, seconds }: RevealOptions): Promise<{ id: string }> {
    if (!authorize) throw new TokenkeepError('wrong_call', 'Give authorize.');
    await this.ready();
    return this.request('reveal', { token, copy, seconds }, authorize, timeout);
  }

  #options(): Bag {
    const { locale = document.documentElement.lang, dir = getComputedStyle(this.frame!).direction, appearance, texts } = this.elements.options;
    const { title: _, texts: mine, ...rest } = this.options;
    return { locale, dir, appearance, theme: this.elements.theme(), ...rest, texts: { ...texts, ...mine } };
  }
  #send(type: string, more: Bag = {}): void { this.#port?.postMessage({ type, ...more }); }

  /** Sends a request to the frame. One that takes too long is cancelled there: the frame knows whether it has succeeded meanwhile. */
  request<T>(type: string, more: Bag, authorize: Authorize | undefined, timeout: number): Promise<T> {
    const id = random();
    return new Promise<T>((resolve, reject) => {
      let timer = setTimeout(() => {
        this.#send('cancel', { id });
        timer = setTimeout(() => waiting.reject(new TokenkeepError('timeout', 'The request took too long.')), CANCEL_MS);
      }, timeout);
      const end = () => { clearTimeout(timer); this.#waiting.delete(id); };
      const waiting: Waiting = { authorize, resolve: (v) => { end(); resolve(v as T); }, reject: (e) => { end(); reject(e); } };
      this.#waiting.set(id, waiting);
      this.#send(type, { id, ...more });
    });
  }

  #heard(m: unknown, ready: () => void): void {
    const type = own(m, 'type');
    switch (type) {
      case 'ready':
        if (this.frame && !this.options.title && own(m, 'title')) this.frame.title = String(own(m, 'title'));
        ready();
        this.#emit('ready');
        break;
      case 'size': {
        const height = Number(own(m, 'height'));
        if (this.frame && height > 0 && height <= 800) this.frame.style.height = `${height}px`;
        break;
      }
      case 'change':
        this.state = { complete: own(m, 'complete') === true, empty: own(m, 'empty') === true, brand: own(m, 'brand') as string, errors: (own(m, 'errors') ?? {}) as never };
        this.#emit('change', this.state);
        break;
      case 'focus': case 'blur': this.#emit(type, { field: own(m, 'field') }); break;
      case 'submit': case 'hidden': this.#emit(type); break;
      case 'refused':
        this.#emit('refused', { what: own(m, 'what') });
        console.warn('tokenkeep: not applied:', own(m, 'what'));
        break;
      case 'nonce': this.#nonce(String(own(m, 'id')), String(own(m, 'nonce'))); break;
      case 'done': {
        const w = this.#waiting.get(String(own(m, 'id'))), e = own(m, 'error');
        if (own(m, 'ok') === true) w?.resolve(own(m, 'value'));
        else w?.reject(new TokenkeepError(String(own(e, 'code')), String(own(e, 'message')), e as Bag));
      }
    }
  }

  async #nonce(id: string, nonce: string): Promise<void> {
    const w = this.#waiting.get(id);
    let ok = false;
    try {
      await w?.authorize?.(nonce);
      ok = !!w?.authorize;
    } catch (e) { w?.reject(e as Error); }
    this.#send('authorized', { id, ok });
  }

  #emit(type: string, e?: unknown): void { for (const l of this.#listeners.get(type) ?? []) (l as (e: unknown) => void)(e); }
}

export class Elements {
  readonly group = random();
  readonly vault: string;
  readonly list = new Set<CardElement>();
  readonly fonts: Promise<Bag[]>;
  #running: Promise<Token> | null = null;

  constructor(readonly options: ElementsOptions) {
    this.vault = new URL(options.vault ?? here).origin;
    if (!/^key_[a-z0-9]+_pub_\w+$/.test(options.key)) throw new TokenkeepError('wrong_key', 'A page takes the key of a public application.');
    // The page fetches fonts under its own policy; the frame gets bytes.
    this.fonts = Promise.all((options.fonts ?? []).map(async ({ family, src, weight }) => ({ family, weight, data: await (await fetch(src)).arrayBuffer() }))).catch(() => []);
  }

  create(kind: Kind, options: ElementOptions = {}): CardElement { return new CardElement(kind, this, options); }

  theme(): 'light' | 'dark' {
    const t = this.options.appearance?.theme ?? 'light';
    return t === 'auto' ? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light') : t;
  }
  onTheme(f: () => void): () => void {
    if (this.options.appearance?.theme !== 'auto') return () => {};
    const m = matchMedia('(prefers-color-scheme: dark)');
    m.addEventListener('change', f);
    return () => m.removeEventListener('change', f);
  }

  /** Stores what was typed: the card, or the value of another element. While a call is in progress, another gets the same promise. */
  tokenize(o: TokenizeOptions): Promise<Token> { return (this.#running ??= this.#tokenize(o).finally(() => { this.#running = null; })); }
  async #tokenize({ authorize, session, metadata, container, timeout = 60_000 }: TokenizeOptions): Promise<Token> {
    const all = [...this.list].filter((e) => e.kind !== 'reveal'), main = senders.map((kind) => all.find((e) => e.kind === kind)).find(Boolean);
    if (!main) throw new TokenkeepError('not_mounted', 'No element whose value can be stored is mounted.');
    if (!authorize === !session) throw new TokenkeepError('wrong_call', 'Give either authorize or session.');
    await Promise.all(all.map((e) => e.ready()));
    const fields = main.kind === 'number' ? all.map((e) => e.kind) : [];
    try {
      return await main.request<Token>('tokenize', { fields, session, metadata, container }, authorize, timeout);
    } catch (e) {
      if (main.kind === 'number' && e instanceof TokenkeepError && e.code === 'incomplete') all.find((x) => x.kind === e.fields[0])?.focus();
      throw e;
    }
  }
  destroy(): void { for (const e of [...this.list]) e.unmount(); }
}

export const elements = (options: ElementsOptions) => new Elements(options);
