// What is known of bank accounts: pure functions, no DOM.

/** Whether nine digits are a US routing number: the check digit of the American Bankers Association. The vault checks the same. */
export function isRouting(d: string): boolean {
  if (!/^\d{9}$/.test(d) || d === '000000000') return false;
  let sum = 0;
  for (let i = 0; i < 9; i++) sum += +d[i] * [3, 7, 1][i % 3];
  return sum % 10 === 0;
}

export const checkRouting = (d: string): string =>
  !d ? 'routing_required' : d.length < 9 ? 'routing_incomplete' : isRouting(d) ? '' : 'routing_invalid';

/** US account numbers have no check digit; the vault takes 1 to 17 digits. */
export const checkAccount = (d: string): string =>
  !d ? 'account_required' : /^\d{1,17}$/.test(d) ? '' : 'account_invalid';

// Lengths of IBANs by country, from the registry of SWIFT: a length, then its countries.
const registry =
  '15NO|16BE|18DKFIFKFOGLNLSD|19MKSI|20ATBAEEKZLTLUMNXK|21CHHRLILV|22BGBHCRDEGBGEIEMERSVA|23AEGIILIQOMSOTL|24ADCZESMDPKROSASESKTNVG|' +
  '25LYPTST|26ISTR|27BIDJFRGRITMCMRSM|28ALAZBYCYDOGTHNHULBNIPLSV|29BREGPSQAUA|30JOKWMUYE|31MTSC|32LC|33RU';

const lengthOf = new Map(registry.split('|').flatMap((row) => (row.slice(2).match(/../g) ?? []).map((country) => [country, +row.slice(0, 2)] as const)));

/** The length of the IBANs of a country; 0 when the country has none. */
export const ibanLength = (country: string): number => lengthOf.get(country) ?? 0;

/** The characters of an IBAN in a text: capital letters and digits. */
export const ibanOf = (text: string): string => text.normalize('NFKC').toUpperCase().replace(/[^A-Z0-9]/g, '');

export const formatIban = (iban: string): string => iban.replace(/(.{4})(?=.)/g, '$1 ');

/** The remainder by 97 of an IBAN, with letters as numbers from 10; 1 is right. It goes digit by digit: the number has up to 68. */
function remainder(iban: string): number {
  let rest = 0;
  for (const c of iban.slice(4) + iban.slice(0, 4)) for (const digit of String(parseInt(c, 36))) rest = (rest * 10 + +digit) % 97;
  return rest;
}

export function checkIban(iban: string): string {
  if (!iban) return 'iban_required';
  if (!/^[A-Z]{1,2}$|^[A-Z]{2}\d$|^[A-Z]{2}\d{2}[A-Z0-9]*$/.test(iban)) return 'iban_invalid';
  if (iban.length < 2) return 'iban_incomplete';
  const length = ibanLength(iban.slice(0, 2));
  if (!length) return 'iban_country';
  if (iban.length < length) return 'iban_incomplete';
  // The check digits are 02 to 98: 00, 01 and 99 have a remainder like 97, 98 and 02.
  return iban.length === length && remainder(iban) === 1 && +iban.slice(2, 4) > 1 && +iban.slice(2, 4) < 99 ? '' : 'iban_invalid';
}
