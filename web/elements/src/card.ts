// What is known of cards: pure functions, no DOM.
import { table } from './brands.gen';

const brands = table.split('|').flatMap((row) => {
  const [brand, ...ranges] = row.split(' ');
  return ranges.map((range) => {
    const [first, last = first] = range.split('-');
    return { brand, first, last };
  });
});

/** The brand of a number or of the beginning of one; "" when none is known. Of several ranges that match, the longest counts. */
export function brandOf(number: string): string {
  let found = '', length = 0;
  for (const b of brands) {
    const n = b.first.length, head = number.slice(0, n);
    if (n > length && number.length >= n && head >= b.first && head <= b.last) {
      found = b.brand;
      length = n;
    }
  }
  return found;
}

/** The lengths that numbers of a brand have, the most common one first. */
export function lengths(brand: string): number[] {
  switch (brand) {
    case 'american-express': return [15];
    case 'diners-club': return [14, 16, 19];
    case 'visa': return [16, 13, 19];
    case 'mastercard': case 'elo': case 'hiper': case 'hipercard': return [16];
    case 'maestro': case '': return [12, 13, 14, 15, 16, 17, 18, 19];
    default: return [16, 17, 18, 19];
  }
}

export const cvcLength = (brand: string) => (brand === 'american-express' ? 4 : 3);

const gaps = (brand: string, n: number) => (brand === 'american-express' || (brand === 'diners-club' && n <= 14) ? [4, 10] : [4, 8, 12, 16]);

/** Full-width, Arabic-Indic and Persian digits as ASCII digits. */
const ascii = (text: string) => text.normalize('NFKC').replace(/[\u0660-\u0669\u06f0-\u06f9]/g, (c) => String(c.charCodeAt(0) & 15));

/** The digits of a text, as ASCII digits. */
export const digitsOf = (text: string) => ascii(text).replace(/\D/g, '');

export function formatNumber(digits: string): string {
  const at = gaps(brandOf(digits), digits.length);
  let out = '';
  for (let i = 0; i < digits.length; i++) out += (at.includes(i) ? ' ' : '') + digits[i];
  return out;
}

export function luhn(digits: string): boolean {
  let sum = 0;
  for (let i = 0; i < digits.length; i++) {
    let n = +digits[digits.length - 1 - i];
    if (i % 2 && (n *= 2) > 9) n -= 9;
    sum += n;
  }
  return digits.length > 0 && sum % 10 === 0;
}

/** Digits MMYY from what was typed, pasted or filled: 3 → 03, 13 → 01 3, 12/2030, 2030-12, 1/30. */
export function expiryDigits(text: string, typing: boolean): string {
  const t = ascii(text);
  const iso = /^\s*20(\d\d)\D+(\d\d?)\s*$/.exec(t);
  if (iso) return iso[2].padStart(2, '0') + iso[1];
  const parts = /^\s*(\d{1,2})\s*\D+\s*(\d*)\s*$/.exec(t), separated = /[/.\-]/.test(t);
  let month = '', year = '';
  if (parts && (parts[2] || parts[1].length === 2 || separated)) [, month, year] = parts;
  else {
    const d = digitsOf(t);
    month = d.slice(0, 2);
    year = d.slice(2);
  }
  if (month.length === 1 && (month > '1' || (parts && separated && month === '1'))) month = '0' + month;
  if (month.length === 2 && month > '12') {
    year = month[1] + year;
    month = '0' + month[0];
  }
  if (/^20\d\d/.test(year)) year = year.slice(2, 4);
  else if (year.length > 2) year = typing && year.startsWith('20') ? year : year.slice(0, 2); // 203 is a year of four digits on its way
  return month + year;
}

export const formatExpiry = (d: string, deleting: boolean) => (d.length < 2 || (deleting && d.length === 2) ? d : d.slice(0, 2) + ' / ' + d.slice(2));

export function checkNumber(d: string, accept: string[]): string {
  if (!d) return 'number_required';
  const brand = brandOf(d), all = lengths(brand);
  if (accept.length && brand && !accept.includes(brand)) return 'number_brand';
  if (!all.includes(d.length)) return 'number_incomplete';
  if (luhn(d)) return '';
  return d.length < Math.max(...all) && d.length < 16 ? 'number_incomplete' : 'number_invalid';
}

export function checkExpiry(d: string, now = new Date()): string {
  if (!d) return 'expiry_required';
  const month = +d.slice(0, 2);
  if (d.length >= 2 && (month < 1 || month > 12)) return 'expiry_invalid';
  if (d.length !== 4) return 'expiry_incomplete';
  const ahead = (2000 + +d.slice(2, 4) - now.getFullYear()) * 12 + month - 1 - now.getMonth();
  return ahead < 0 ? 'expiry_past' : ahead > 50 * 12 ? 'expiry_invalid' : '';
}

export const checkCvc = (d: string, brand: string): string =>
  !d ? 'cvc_required' : d.length < (brand ? cvcLength(brand) : 3) ? 'cvc_incomplete' : '';
