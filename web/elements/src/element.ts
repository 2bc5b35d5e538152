// <tokenkeep-card public-key="…" vault="…" theme="auto" layout="line">: the card element for plain HTML and any framework.
import { Elements, type Appearance, type CardElement, type Token, type TokenizeOptions } from './loader';

const Base = typeof HTMLElement === 'undefined' ? (class {} as typeof HTMLElement) : HTMLElement; // servers import the module, too

export class TokenkeepCard extends Base {
  static observedAttributes = ['disabled'];
  elements: Elements | null = null;
  card: CardElement | null = null;
  appearance?: Appearance;

  connectedCallback(): void {
    const attribute = (name: string) => this.getAttribute(name) ?? undefined;
    this.style.display ||= 'block';
    this.elements = new Elements({
      key: attribute('public-key') ?? '', vault: attribute('vault'), locale: attribute('locale'), appearance: this.appearance ?? { theme: attribute('theme') as 'auto' },
    });
    const card = this.elements.create('card', { layout: attribute('layout') as 'line', disabled: this.hasAttribute('disabled') });
    this.card = card;
    for (const type of ['ready', 'change', 'focus', 'blur', 'submit'] as const) {
      card.on(type, (detail: unknown) => {
        this.dispatchEvent(new CustomEvent('tokenkeep-' + type, { detail, bubbles: true }));
        if (type === 'submit' && !this.hasAttribute('no-submit')) this.closest('form')?.requestSubmit();
      });
    }
    card.mount(this);
  }
  disconnectedCallback(): void { this.card?.unmount(); }
  attributeChangedCallback(_name: string, _old: string | null, value: string | null): void { this.card?.setDisabled(value !== null); }
  tokenize(o: TokenizeOptions): Promise<Token> { return this.elements!.tokenize(o); }
  override focus(): void { this.card?.focus(); }
  clear(): void { this.card?.clear(); }
}

if (typeof customElements !== 'undefined' && !customElements.get('tokenkeep-card')) customElements.define('tokenkeep-card', TokenkeepCard);
