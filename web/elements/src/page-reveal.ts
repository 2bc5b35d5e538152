// The page that shows a card to its holder for a while. It takes no input, and pages of fields cannot read a token.
import { formatNumber } from './card';
import { Frame, h, type Content } from './frame';
import { own, str, type Bag } from './messages';
import { revealTexts } from './texts';
import { call, Failed, newSession } from './vault';

const SECONDS = 60;
const frame = new Frame(revealTexts);
let shows = false; // from then on the page is told no height: it could depend on the digits
let hide = () => {};
let epoch = 0; // a reveal that began before the page cleared the element shows nothing

function clear(): void {
  epoch++;
  hide();
}

async function reveal(m: unknown, id: string, signal: AbortSignal): Promise<Bag> {
  hide();
  const began = epoch, token = str(m, 'token', 400);
  if (!token) throw new Failed('invalid', 'The token is missing.');
  const session = await newSession(frame, id, signal);
  const answer = await call(frame, { method: 'GET', path: '/tokens/' + encodeURIComponent(token), key: session.key, signal });
  const data = own(answer, 'data'), number = str(data, 'number', 19);
  if (!/^\d{12,19}$/.test(number)) throw new Failed('not_allowed', 'The session does not reveal this card.');
  if (epoch !== began) throw new Failed('cleared', 'The element was cleared.');
  const seconds = Number(own(m, 'seconds'));
  show(number, expiryOf(data), own(m, 'copy') === true, seconds >= 5 && seconds <= SECONDS ? seconds : SECONDS);
  return { id: token };
}

function expiryOf(data: unknown): string {
  const month = own(data, 'expiration_month'), year = own(data, 'expiration_year');
  return typeof month === 'number' && typeof year === 'number' ? `${frame.texts.expires} ${String(month).padStart(2, '0')} / ${String(year).slice(-2)}` : '';
}

function show(number: string, expiry: string, copyable: boolean, seconds: number): void {
  const shown = h('b', '', formatNumber('0'.repeat(16))), out = h('div', 'tk-out', shown);
  if (copyable) out.append(copyButton(number, shown));
  out.append(h('small', '', expiry));
  document.body.replaceChildren(out);
  frame.size(); // the height with zeros
  shows = true;
  shown.textContent = formatNumber(number);
  const timer = setTimeout(() => hide(), seconds * 1000);
  const onVisibility = () => { if (document.hidden) hide(); };
  addEventListener('visibilitychange', onVisibility);
  hide = () => {
    hide = () => {};
    clearTimeout(timer);
    removeEventListener('visibilitychange', onVisibility);
    const note = h('small', '', frame.texts.hidden);
    note.setAttribute('role', 'status');
    document.body.replaceChildren(h('div', 'tk-out', note));
    frame.say('hidden');
  };
  onVisibility();
}

function copyButton(number: string, shown: HTMLElement): HTMLElement {
  const button = h('button', '', frame.texts.copy);
  button.type = 'button';
  button.addEventListener('click', async (e) => {
    if (!e.isTrusted) return;
    try {
      await navigator.clipboard.writeText(number);
      button.textContent = frame.texts.copied;
    } catch { getSelection()?.selectAllChildren(shown); }
  });
  return button;
}

const content: Content = {
  fields: [],
  fonts: false, // glyphs of the page's making would give digits sizes
  options() {},
  heard(type) { if (type === 'clear') clear(); },
  request: (type, m, id, signal) => (type === 'reveal' ? reveal(m, id, signal) : undefined),
  clear() {
    clear();
    document.body.replaceChildren();
  },
  tellsHeight: () => !shows,
  started() {},
};
addEventListener('dragstart', (e) => e.preventDefault()); // digits are not dragged into the page
frame.start(content);
