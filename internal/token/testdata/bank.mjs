// Checks web/elements/src/bank.ts, bundled, whose path is the first argument.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const bank = await import(process.argv[2]);

// Examples of the registry of IBANs and of banks' own pages; none is an account of anybody.
const right = [
  'AD1200012030200359100100', 'AE070331234567890123456', 'AL47212110090000000235698741', 'AT611904300234573201', 'BE68539007547034', 'BG80BNBG96611020345678', 'BH67BMAG00001299123456',
  'BR1800360305000010009795493C1', 'CH9300762011623852957', 'CY17002001280000001200527600', 'CZ6508000000192000145399', 'DE89370400440532013000', 'DK5000400440116243', 'EE382200221020145685',
  'ES9121000418450200051332', 'FI2112345600000785', 'FR1420041010050500013M02606', 'GB29NWBK60161331926819', 'GB82WEST12345698765432', 'GI75NWBK000000007099453', 'GR1601101250000000012300695',
  'HR1210010051863000160', 'HU42117730161111101800000000', 'IE29AIBK93115212345678', 'IL620108000000099999999', 'IS140159260076545510730339', 'IT60X0542811101000000123456', 'KZ86125KZT5004100100',
  'LI21088100002324013AA', 'LT121000011101001000', 'LU280019400644750000', 'LV80BANK0000435195001', 'MC5811222000010123456789030', 'MT84MALT011000012345MTLCAST001S', 'NL91ABNA0417164300',
  'NO9386011117947', 'PL61109010140000071219812874', 'PT50000201231234567890154', 'RO49AAAA1B31007593840000', 'SA0380000000608010167519', 'SE4550000000058398257466', 'SI56263300012039086',
  'SK3112000000198742637541', 'SM86U0322509800000000270100', 'TN5910006035183598478831', 'TR330006100519786457841326',
];
for (const iban of right) {
  assert.equal(bank.checkIban(iban), '', iban);
  assert.equal(bank.ibanLength(iban.slice(0, 2)), iban.length, iban);
  for (let n = 1; n < iban.length; n++) assert.equal(bank.checkIban(iban.slice(0, n)), 'iban_incomplete', iban.slice(0, n));
  assert.equal(bank.checkIban(iban + '0'), 'iban_invalid', 'a digit too many');
  // One wrong digit, and two that are exchanged, are always found.
  for (let i = 2; i < iban.length; i++) {
    if (!/\d/.test(iban[i])) continue;
    const other = String((+iban[i] + 1) % 10);
    assert.equal(bank.checkIban(iban.slice(0, i) + other + iban.slice(i + 1)), 'iban_invalid', `${iban} with ${other} at ${i}`);
    if (i > 4 && /\d/.test(iban[i - 1]) && iban[i] !== iban[i - 1]) {
      assert.equal(bank.checkIban(iban.slice(0, i - 1) + iban[i] + iban[i - 1] + iban.slice(i + 1)), 'iban_invalid', `${iban} with ${i} exchanged`);
    }
  }
  assert.equal(bank.ibanOf(bank.formatIban(iban).toLowerCase()), iban);
}
assert.equal(bank.formatIban('DE89370400440532013000'), 'DE89 3704 0044 0532 0130 00');
assert.equal(bank.formatIban('BE68539007547034'), 'BE68 5390 0754 7034');
assert.equal(bank.checkIban(''), 'iban_required');
for (const wrong of ['1', 'D1', 'DEA', 'DE8A', '4242424242424242']) assert.equal(bank.checkIban(wrong), 'iban_invalid', wrong);
for (const nowhere of ['US', 'ZZ12', 'AA00']) assert.equal(bank.checkIban(nowhere), 'iban_country', nowhere);
// The check digits 01 and 99 have the remainder of 98 and 02.
for (let n = 0; n < 100; n++) {
  const digits = String(n).padStart(2, '0'), got = bank.checkIban(`DE${digits}370400440532013000`);
  assert.equal(got, n === 89 ? '' : 'iban_invalid', digits);
}

for (const n of ['021000021', '011401533', '091000019', '122105155', '322271627']) assert.equal(bank.checkRouting(n), '', n);
for (const n of ['021000012', '123456789', '000000000']) assert.equal(bank.checkRouting(n), 'routing_invalid', n);
assert.deepEqual(['', '0', '02100002'].map(bank.checkRouting), ['routing_required', 'routing_incomplete', 'routing_incomplete']);
assert.deepEqual(['', '1', '12345678901234567', '123456789012345678', '12a'].map(bank.checkAccount), ['account_required', '', '', 'account_invalid', 'account_invalid']);

// What the vault says of routing numbers, given by the test.
const numbers = JSON.parse(readFileSync(0, 'utf8'));
for (const [n, valid] of Object.entries(numbers)) assert.equal(bank.isRouting(n), valid, `the vault says ${valid} of ${n}`);
console.log(`${right.length} IBANs, ${Object.keys(numbers).length} routing numbers`);
